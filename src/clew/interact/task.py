"""The interface of tasks for training, evaluation, inspection and films."""

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
    """How Gymnasium environments are run; tasks written in JAX do not use it."""

    processes: int = 0
    """Worker processes that step the environments, each an equal share; 0 steps them in the
    learner's process, which is best for fast ones."""
    timeout: float = 120.0
    """Seconds after which an environment in a worker process counts as hung."""
    restarts: int = 10
    """How often environments that raised, hung or died are reopened before the run ends."""

    def validate(self) -> None:
        require_at_least("processes", self.processes, 0)
        require_at_least("restarts", self.restarts, 0)
        require_rate("timeout", self.timeout, positive=True)


class DefaultSettings(NamedTuple):
    """Defaults of a run's settings that depend on its task."""

    algorithm: str = "a2c"
    encoder: str | None = None
    """The encoder; None is the network's own default."""
    normalise_rewards: bool = False
    """Whether to scale rewards, for tasks of unknown reward scale."""


@dataclass(frozen=True)
class PlayConfig(Settings):
    """Which fresh episodes to play, and how."""

    episodes: int = 1
    """Number of episodes."""
    greedy: bool = True
    """Take the most probable action, instead of sampling from the policy."""
    max_steps: int = 10_000
    """Most steps of an episode; a longer one is stopped."""
    seed: int = 0
    """Seed of the episodes and samples."""

    def validate(self) -> None:
        require_episodes(self.episodes, self.max_steps, self.seed)


OnEnded = Callable[[int], object]
"""Called with the number of episodes that ended since the last call."""


def unheard(count: int) -> None:
    """An `OnEnded` that does nothing."""


class Evaluator(Protocol):
    """Plays whole episodes with one agent after another, and returns the task's metrics."""

    def __call__(
        self, params: Any, statistics: Any, episodes: int, entropy: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """Every metric of every episode.

        Args:
            params: the arrays of the agent.
            statistics: of the wrappers, from training; they do not change. None if there are none.
            episodes: number of episodes.
            entropy: whole numbers that seed these episodes and actions, different from all others.

        Raises:
            UserError: if an episode does not end.
        """
        ...


class Task(Protocol):
    """A task as a run sees it. There are two kinds: tasks written in JAX, whose episodes are
    compiled with the agent (`CompiledTask`), and Gymnasium environments, which the host steps
    (`HostedTask`). Every difference between them is a method here, so that code outside
    `clew.interact` need not know the kind.
    """

    name: str
    """The name in a run's settings."""
    observation_space: Space
    """The agent's observations, after the wrappers."""
    action_space: Space
    """The agent's actions."""
    unread: tuple[str, ...]
    """Entries of the observations that no agent sees: texts."""
    metric_names: tuple[str, ...]
    """The metrics of every episode."""
    shortest_episode: int
    """Least number of steps of an episode; 1 if no larger bound is known."""
    acts_on_device: bool
    """Whether its steps are compiled together with the agent's."""
    whole_episodes: bool
    """Whether a rollout can be one whole episode of every environment."""
    runners: tuple[str, ...]
    """The runners that can train on it."""

    def check_training(self, processes: int, num_envs: int) -> None:
        """Refuses a number of worker processes that does not fit `num_envs` environments, and films
        of an environment that does not render.

        Raises:
            UserError: naming both numbers, or the environment.
        """
        ...

    def unused_mask(self) -> bool:
        """Whether environments give an action mask in `info` that no wrapper uses."""
        ...

    def check_same_observations(self, other: "Task", name: str, other_name: str) -> None:
        """Refuses another task whose observations an agent of this one cannot read.

        Raises:
            UserError: naming both as given, and the observations of each.
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
        """The result of the function for its kind of task, such as a training loop."""
        ...

    def init_actor(self, agent: Agent, num_envs: int, key: PRNGKeyArray) -> Any:
        """The state of acting before the first rollout: an `ActorState` or a `HostState`."""
        ...

    def actor_layout(self, environments: Any, whole: Any) -> Any:
        """The layouts of the arrays of `init_actor`, as a tree of the same form.

        Args:
            environments: the layout of arrays that have an axis of environments.
            whole: the layout of all others.
        """
        ...

    def rollout_template(self, agent: Agent, actor: Any, learner: Learner) -> Rollout:
        """Shapes and types of a rollout for `learner`; nothing is computed."""
        ...

    def require_finite(self, actor: Any, returns: Any) -> None:
        """Checks after a diverged update whether the task's numbers are the cause.

        Args:
            actor: of one seed, the state of acting after the update.
            returns: the sum of the latest episodes' returns.

        Raises:
            EnvironmentFault: an observation or a return is not finite.
        """
        ...

    def statistics(self) -> Any:
        """The wrappers' initial statistics, as a tree of float64 arrays; None for a task whose
        wrappers have none."""
        ...

    def evaluator(
        self, static: Agent, *, greedy: bool, max_steps: int, on_ended: OnEnded = unheard
    ) -> Evaluator:
        """Compiles a function that plays whole episodes.

        Args:
            static: the agent without its arrays.
            greedy: take the most probable action, instead of sampling from the policy.
            max_steps: an episode that takes longer is an error.
            on_ended: called while it plays.
        """
        ...

    def episodes(self, agent: Agent, how: PlayConfig, statistics: Any = None) -> Episodes:
        """Plays episodes and keeps observations and actions, for `clew inspect`.

        Episodes longer than `max_steps` are left out, and counted.

        Args:
            agent: the network.
            how: how to play.
            statistics: of the wrappers, from training; None for none.

        Raises:
            UserError: for impossible numbers, if no episode ends in time, or if the observations
                take too much RAM.
            EnvironmentFault: an environment failed.
        """
        ...

    def recordings(
        self, agent: Agent, how: PlayConfig, statistics: Any = None
    ) -> Iterator[Recording]:
        """Plays episodes one after another and keeps everything that a film shows; see `episodes`.

        With a larger number of episodes, the first ones stay the same. Episodes longer than
        `max_steps` are cut there.
        """
        ...

    def adapter(self, statistics: Any = None) -> PolicyAdapter:
        """The adapter between an environment of the task and a policy.

        Args:
            statistics: of the wrappers, from training; None for none.
        """
        ...

    def moments(
        self, policy: Callable[..., Any], *, longest: int, seed: int = 0
    ) -> Iterator[Moment]:
        """The moments of a policy in one environment, episode after episode, without end.

        Only wrappers around the environment itself are applied, including trials.

        Args:
            policy: chooses actions, called like `clew.Policy`.
            longest: an episode is stopped after this many actions.
            seed: of the episodes.
        """
        ...
