"""A run's task, in JAX or of others, as training sees it."""

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clew.envs import make_env
from clew.envs.stream import AutoReset
from clew.envs.wrappers import WrapperConfig
from clew.errors import require_at_least, require_rate

if TYPE_CHECKING:
    from clew.bridges.gymnasium.stream import HostStream
    from clew.bridges.gymnasium.task import GymnasiumTask


@dataclass(frozen=True)
class HostConfig:
    """How environments of others are run; tasks written in JAX have no use for it."""

    processes: int = 0
    """Worker processes that step the environments, each an equal share; 0 steps them in the
    process that learns, which is best for quick ones."""
    timeout: float = 120.0
    """Seconds after which an environment in a worker process counts as hung."""
    restarts: int = 10
    """How often environments that raised, hung or died are opened anew before the run ends."""

    def validate(self) -> None:
        """Refuses impossible settings.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """
        require_at_least("processes", self.processes, 0)
        require_at_least("restarts", self.restarts, 0)
        require_rate("timeout", self.timeout, positive=True)


class HostSide:
    """An environment of others with a run's wrappers around it."""

    def __init__(self, task: "GymnasiumTask", wrappers: WrapperConfig):
        self.task, self.wrappers = task, wrappers
        self.observation_space = task.observed(wrappers)
        self.action_space = task.action_space
        self.metric_names = task.metric_names

    def statistics(self) -> dict[str, Any]:
        """What the wrappers know before any observation, as `HostStream.state` tells it."""
        from clew.bridges.gymnasium.wrappers import Transforms

        blank = Transforms(self.wrappers, self.task.observation_space, self.action_space, 1)
        return blank.state()

    def open(
        self, num_envs: int, *, seed: int, processes: int = 0, frozen: bool = False
    ) -> "HostStream":
        """Opens so many environments, see `GymnasiumTask.open`."""
        return self.task.open(
            num_envs, processes=processes, seed=seed, wrappers=self.wrappers, frozen=frozen
        )


Stream = AutoReset | HostSide


def of_others(env: str) -> bool:
    """Whether a task's name is that of an environment which the host steps."""
    if ":" not in env:  # gymnasium is not imported for clew's own tasks
        return False
    from clew.bridges.gymnasium.task import is_gymnasium

    return is_gymnasium(env)


def make_stream(env: str, options: dict[str, Any], wrappers: WrapperConfig) -> Stream:
    """A task as an endless stream of episodes, or what opens such streams.

    Raises:
        UserError: for an unknown task or option, an impossible value, or wrappers that the task
            does not take.
    """
    if of_others(env):
        return HostSide(_host_task(env, json.dumps(options)), wrappers)
    task = make_env(env, **options)
    if wrappers != WrapperConfig():
        from clew.envs.wrappers import wrap

        task = wrap(task, wrappers, env)
    return AutoReset(task)


@functools.lru_cache(8)  # finding out the spaces of an environment builds it, which may take long
def _host_task(name: str, options: str) -> "GymnasiumTask":
    from clew.bridges.gymnasium.task import gymnasium_task

    return gymnasium_task(name, json.loads(options))
