"""What training, evaluation, inspection and films ask of a task, whatever steps it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from gymnasium.spaces import Space
from jaxtyping import PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.network import Agent
from clew.agents.trajectory import Rollout
from clew.envs.stream import AutoReset
from clew.errors import Settings, require_at_least, require_episodes, require_rate
from clew.interact.episodes import Episodes, Recording
from clew.interact.policy import Moment, PolicyAdapter

if TYPE_CHECKING:
    from clew.interact.compiled_task import CompiledTask
    from clew.interact.hosted_task import HostedTask

Result = TypeVar("Result")


@dataclass(frozen=True)
class HostConfig(Settings):
    """How Gymnasium environments are run; tasks written in JAX have no use for it."""

    processes: int = 0
    """Worker processes that step the environments, each an equal share; 0 steps them in the
    process that learns, which is best for quick ones."""
    timeout: float = 120.0
    """Seconds after which an environment in a worker process counts as hung."""
    restarts: int = 10
    """How often environments that raised, hung or died are opened anew before the run ends."""

    def validate(self) -> None:
        require_at_least("processes", self.processes, 0)
        require_at_least("restarts", self.restarts, 0)
        require_rate("timeout", self.timeout, positive=True)


class DefaultSettings(NamedTuple):
    """The settings of a run that depend on its task, where the user has chosen none."""

    algorithm: str = "a2c"
    encoder: str | None = None
    """None is the network's own default."""
    normalise_rewards: bool = False
    """Whether rewards are scaled, which the size of a task's rewards may ask for."""


@dataclass(frozen=True)
class PlayConfig(Settings):
    """Which fresh episodes are played, and how."""

    episodes: int = 1
    """How many."""
    greedy: bool = True
    """Take the most probable action, instead of sampling from the policy."""
    max_steps: int = 10_000
    """An episode that takes longer is given up."""
    seed: int = 0
    """Of the episodes and samples."""

    def validate(self) -> None:
        require_episodes(self.episodes, self.max_steps, self.seed)


OnEnded = Callable[[int], object]
"""Called with how many episodes have ended since the last call."""


def unheard(count: int) -> None:
    """For whom it is not worth telling."""


class Evaluator(Protocol):
    """Plays whole episodes with one agent after another and returns what the task measures."""

    def __call__(
        self, params: Any, statistics: Any, episodes: int, entropy: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """Every metric of every episode.

        Args:
            params: the arrays of the agent.
            statistics: of the wrappers, as training left them; they do not change. None if there
                are none.
            episodes: how many.
            entropy: whole numbers that tell these episodes, and the actions, from all others.

        Raises:
            UserError: if an episode does not end.
        """
        ...


class Task(Protocol):
    """A task as a run sees it. There are two kinds: tasks written in JAX, whose episodes are
    compiled with the agent (`CompiledTask`), and Gymnasium environments, which the host steps
    (`HostedTask`). What differs between them is a method here, and nobody outside of
    `clew.interact` asks which kind a task is of.
    """

    name: str
    """As in a run's settings."""
    observation_space: Space
    """What the agent sees, through the wrappers."""
    action_space: Space
    """What it chooses from."""
    unread: tuple[str, ...]
    """Entries of the observations that no agent sees: texts."""
    metric_names: tuple[str, ...]
    """What is measured of every episode."""
    shortest_episode: int
    """Steps that every episode has at least; 1 where more are not certain."""
    acts_on_device: bool
    """Whether its steps are compiled together with the agent's."""
    whole_episodes: bool
    """Whether a rollout can be one whole episode of every environment."""
    runners: tuple[str, ...]
    """The runners that can train on it."""

    def check_training(self, processes: int, num_envs: int) -> None:
        """Refuses a number of worker processes that `num_envs` environments cannot have, and films
        of what does not render.

        Raises:
            UserError: naming both numbers, or the environment.
        """
        ...

    def unused_mask(self) -> bool:
        """Whether environments say in `info` which actions are allowed, and no wrapper reads it."""
        ...

    def check_same_observations(self, other: "Task", name: str, other_name: str) -> None:
        """Refuses another task whose observations an agent of this one cannot read.

        Raises:
            UserError: naming both as given, and what each of them shows.
        """
        ...

    def require_stream(self) -> AutoReset:
        """The stream of episodes that a compiled program steps.

        Raises:
            UserError: the task is not written in JAX.
        """
        ...

    def program(
        self,
        *,
        compiled: Callable[["CompiledTask"], Result],
        hosted: Callable[["HostedTask"], Result],
    ) -> Result:
        """The training loop for it, made by the function for its kind."""
        ...

    def init_actor(self, agent: Agent, num_envs: int, key: PRNGKeyArray) -> Any:
        """Where acting stands before the first rollout: an `ActorState` or a `HostState`."""
        ...

    def actor_layout(self, environments: Any, whole: Any) -> Any:
        """A tree like `init_actor`'s of where its arrays are.

        Args:
            environments: the layout of arrays that have an axis of environments.
            whole: the layout of all others.
        """
        ...

    def rollout_template(self, agent: Agent, actor: Any, learner: Learner) -> Rollout:
        """Shapes and types of a rollout as `learner` wants it; nothing is computed."""
        ...

    def require_finite(self, actor: Any, returns: Any) -> None:
        """Refuses numbers of the task's that end a training, after an update that did.

        Args:
            actor: of one seed, where acting stood after the update.
            returns: the sum of the returns that ended lately.

        Raises:
            EnvironmentFault: an observation or a return is not finite.
        """
        ...

    def statistics(self) -> Any:
        """What the wrappers know before the first observation, as a tree of float64 arrays; None
        for a task whose wrappers learn nothing."""
        ...

    def evaluator(
        self, static: Agent, *, greedy: bool, max_steps: int, on_ended: OnEnded = unheard
    ) -> Evaluator:
        """Compiles what plays whole episodes.

        Args:
            static: the agent without its arrays.
            greedy: take the most probable action, instead of sampling from the policy.
            max_steps: an episode that takes longer is an error.
            on_ended: called while it plays.
        """
        ...

    def episodes(self, agent: Agent, how: PlayConfig, statistics: Any = None) -> Episodes:
        """Plays episodes and keeps what was observed and chosen, for `clew inspect`.

        One that takes longer than `max_steps` is left out, and counted.

        Args:
            agent: the network.
            how: to play.
            statistics: of the wrappers, as training left them; None for none.

        Raises:
            UserError: for impossible numbers, if no episode ends in time, or if all that is seen
                takes too much memory.
            EnvironmentFault: an environment failed.
        """
        ...

    def recordings(
        self, agent: Agent, how: PlayConfig, statistics: Any = None
    ) -> Iterator[Recording]:
        """Plays episodes one after another and keeps all that a film shows; see `episodes`.

        The first of several are those of fewer. One that takes longer than `max_steps` is cut
        there.
        """
        ...

    def adapter(self, statistics: Any = None) -> PolicyAdapter:
        """What stands between an environment of it and a policy.

        Args:
            statistics: what the wrappers have learned; None for nothing.
        """
        ...

    def moments(
        self, policy: Callable[..., Any], *, longest: int, seed: int = 0
    ) -> Iterator[Moment]:
        """What a policy meets in one environment, episode after episode, without end.

        Only wrappers around the environment itself are between, trials too.

        Args:
            policy: chooses actions, called as `clew.Policy` is.
            longest: an episode is given up after so many actions.
            seed: of the episodes.
        """
        ...
