"""Gymnasium environments as tasks: the host steps them, a compiled network chooses."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.network import Agent
from clew.agents.trajectory import Rollout
from clew.bridges.gymnasium.stream import GymnasiumStream, metric_names_of
from clew.bridges.gymnasium.task import GymnasiumTask
from clew.bridges.gymnasium.wrappers import VectorWrappers
from clew.envs.stream import AutoReset
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact.acting import compile_act, only_action
from clew.interact.episodes import Episodes, record_host_episodes
from clew.interact.evaluate import play_host_episodes
from clew.interact.host_rollout import HostRollout, HostState, packed, rollout_template
from clew.interact.recording import Recording, record_host
from clew.interact.rollout import empty_memories
from clew.interact.task import Evaluator, Task

Result = TypeVar("Result")


class HostedTask:
    """A Gymnasium environment with a run's wrappers; see `Task`. It can be pickled.

    Args:
        environment: without wrappers.
        wrappers: between the environment and the agent.

    Raises:
        UserError: impossible wrappers, or wrappers that do not fit the environment.
    """

    acts_on_device = False
    whole_episodes = False
    shortest_episode = 1
    runners = ("sync", "async")

    def __init__(self, environment: GymnasiumTask, wrappers: WrapperConfig):
        self.environment, self.wrappers = environment, wrappers
        self.name = environment.name
        self.observation_space = environment.observed(wrappers)
        self.action_space = environment.action_space
        self.metric_names = metric_names_of(wrappers)

    def open(
        self, num_envs: int, *, seed: int, processes: int = 0, frozen: bool = False
    ) -> GymnasiumStream:
        """Opens `num_envs` environments, see `GymnasiumTask.open`."""
        return self.environment.open(
            num_envs, processes=processes, seed=seed, wrappers=self.wrappers, frozen=frozen
        )

    def check_processes(self, processes: int, num_envs: int) -> None:
        """Every process steps as many environments."""
        if processes and num_envs % processes:
            raise UserError(
                f"host.processes must divide num_envs, got {processes} processes for {num_envs} "
                "environments"
            )

    def check_same_observations(self, other: Task, name: str, other_name: str) -> None:
        """Refuses another space of observations."""
        own, others = self.observation_space, other.observation_space
        if own != others:
            raise UserError(
                f"{other_name} shows {others}, and {name} {own}: no agent can read both"
            )

    def require_stream(self) -> AutoReset:
        """There is none."""
        raise UserError(f"this needs a task written in JAX, got {self.name}")

    def program(
        self, *, compiled: Callable[[Any], Result], hosted: Callable[["HostedTask"], Result]
    ) -> Result:
        """A training loop on the host."""
        return hosted(self)

    def init_actor(self, agent: Agent, num_envs: int, key: PRNGKeyArray) -> HostState:
        """Empty memories, and wrappers that have seen nothing; no environment is opened."""
        return HostState(empty_memories(agent, num_envs), packed(self.statistics()))

    def actor_layout(self, environments: Any, whole: Any) -> Any:
        """Memories have an axis of environments, statistics have none."""
        return HostState(environments, whole)

    def host_rollout_template(self, agent: Agent, num_envs: int, learner: Learner) -> HostRollout:
        """Shapes and types of what some of its environments give; nothing is computed."""
        length = learner.config.rollout_length
        sequences = length // (learner.gathering.sequence_length or length)
        space, names = self.observation_space, self.metric_names
        return rollout_template(agent, space, names, num_envs, length, sequences)

    def rollout_template(self, agent: Agent, actor: HostState, learner: Learner) -> Rollout:
        """As the host cuts it."""
        template = self.host_rollout_template(agent, learner.config.num_envs, learner)
        return jax.eval_shape(Rollout.cut, *template[:3])

    def statistics(self) -> dict[str, Any]:
        """What the wrappers know before the first observation."""
        seen = self.environment.unmasked(self.wrappers)
        blank = VectorWrappers(self.wrappers, seen, self.action_space, 1)
        return blank.state()

    def evaluator(self, static: Agent, *, greedy: bool, max_steps: int) -> Evaluator:
        """Environments side by side each play the same number of episodes to their ends."""
        choose = compile_act(static, greedy=greedy, keep=only_action)

        def evaluate(
            params: Any, statistics: Any, episodes: int, entropy: tuple[int, ...]
        ) -> dict[str, np.ndarray]:
            agent, own = eqx.combine(params, static), partial(choose, params)
            return play_host_episodes(self, agent, own, statistics, episodes, max_steps, entropy)

        return evaluate

    def episodes(self, agent: Agent, *, statistics: Any = None, **how: Any) -> Episodes:
        """Plays fresh episodes, see `record_host_episodes`."""
        return record_host_episodes(agent, self, statistics=statistics, **how)

    def recordings(
        self, agent: Agent, *, statistics: Any = None, **how: Any
    ) -> Iterator[Recording]:
        """Plays episodes one after another, see `record_host`."""
        return record_host(agent, self, statistics=statistics, **how)
