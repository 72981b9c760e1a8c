"""Tasks written in JAX: a program compiles their episodes together with the agent."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.network import Agent
from clew.agents.trajectory import Rollout
from clew.envs.spaces import NOTHING_ALLOWED
from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.interact.episodes import Episodes, record_episodes
from clew.interact.evaluate import play_batch, play_episodes
from clew.interact.recording import Recording, record
from clew.interact.rollout import ActorState, gather, init_actor
from clew.interact.task import Evaluator, Task

if TYPE_CHECKING:
    from gymnasium.spaces import Space

Result = TypeVar("Result")


@dataclass(frozen=True)
class CompiledTask:
    """A task written in JAX; see `Task`."""

    name: str
    stream: AutoReset
    acts_on_device = True
    whole_episodes = True
    runners = ("sync",)

    @property
    def observation_space(self) -> "Space":
        """What the agent sees."""
        return self.stream.observation_space

    @property
    def action_space(self) -> "Space":
        """What it chooses from."""
        return self.stream.action_space

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What is measured of every episode."""
        return self.stream.metric_names

    @property
    def shortest_episode(self) -> int:
        """What the task says of itself."""
        return self.stream.env.shortest

    def check_processes(self, processes: int, num_envs: int) -> None:
        """There are no worker processes, whatever the settings say."""

    def check_same_observations(self, other: Task, name: str, other_name: str) -> None:
        """Refuses observations of another size."""
        own, others = (task.require_stream().observation_size for task in (self, other))
        if own != others:
            raise UserError(
                f"{other_name} shows {others} numbers, and {name} {own}: no agent can read both"
            )

    def require_stream(self) -> AutoReset:
        """The stream."""
        return self.stream

    def program(
        self, *, compiled: Callable[["CompiledTask"], Result], hosted: Callable[[Any], Result]
    ) -> Result:
        """A compiled training loop."""
        return compiled(self)

    def init_actor(self, agent: Agent, num_envs: int, key: PRNGKeyArray) -> ActorState:
        """Opens an episode in every environment, with an empty memory."""
        return init_actor(agent, self.stream, num_envs, key)

    def actor_layout(self, environments: Any, whole: Any) -> Any:
        """All arrays have an axis of environments."""
        return environments

    def rollout_template(self, agent: Agent, actor: ActorState, learner: Learner) -> Rollout:
        """As a compiled rollout gives it."""
        act = partial(gather, stream=self.stream, learner=learner)
        return eqx.filter_eval_shape(act, agent, actor, jax.random.key(0)).rollout

    def statistics(self) -> None:
        """The wrappers of such tasks learn nothing."""

    def evaluator(self, static: Agent, *, greedy: bool, max_steps: int) -> Evaluator:
        """Episodes are played to their ends in one compiled program, many at once."""
        play = jax.jit(partial(play_batch, static, self.stream, greedy, max_steps))

        def evaluate(
            params: Any, statistics: Any, episodes: int, entropy: tuple[int, ...]
        ) -> dict[str, np.ndarray]:
            first, *others = entropy
            key = jax.random.key(first)
            for number in others:
                key = jax.random.fold_in(key, number)
            found = play_episodes(partial(play, params), key, episodes, self.name, max_steps)
            if self.stream.masks_actions and not np.isfinite(found["return"]).all():
                raise UserError(f"{self.name}: a return is not finite, as after {NOTHING_ALLOWED}")
            return found

        return evaluate

    def episodes(self, agent: Agent, *, statistics: Any = None, **how: Any) -> Episodes:
        """Plays fresh episodes, see `record_episodes`."""
        return record_episodes(agent, self.stream, **how)

    def recordings(
        self, agent: Agent, *, statistics: Any = None, **how: Any
    ) -> Iterator[Recording]:
        """Plays episodes one after another, see `record`."""
        return record(agent, self.stream, **how)
