"""Acting in tasks: rollouts, whole episodes, and a policy that keeps its state; tasks by name."""

import functools
import json
from collections.abc import Hashable
from typing import Any

from clew.bridges.gymnasium.task import GymnasiumTask, definition, gymnasium_task, is_gymnasium
from clew.bridges.make import jax_task, make_env, refuse_unknown_options
from clew.envs.wrappers import WrapperConfig
from clew.interact.compiled_task import CompiledTask
from clew.interact.hosted_task import HostedTask
from clew.interact.task import DefaultSettings, HostConfig, Task


def make_task(
    env: str, options: dict[str, Any], wrappers: WrapperConfig, host: HostConfig | None = None
) -> Task:
    """A task by its name, with its wrappers.

    Args:
        env: the name of a JAX task (see `clew.bridges.make.make_env`), "gymnasium:ID",
            "pettingzoo:MODULE" or "module:factory"; "module:Class" with a class derived from
            `Environment` is a JAX task.
        options: of the task.
        wrappers: between the task and the agent.
        host: how to step the Gymnasium environments that episodes are played in; by default in this
            process.

    Raises:
        UserError: for an unknown task or option, an impossible value, or wrappers that the task
            does not take.
    """
    if _is_hosted(env):
        found = _gymnasium_task(env, json.dumps(options), definition(env))
        return HostedTask(found, wrappers, host)
    return CompiledTask(env, make_env(env, **options), wrappers)


def check_name(env: str, options: dict[str, Any]) -> None:
    """Refuses an unknown task in JAX, or an unknown option of one; nothing is built.

    Raises:
        UserError: naming the nearest valid ones.
    """
    if not _is_hosted(env):
        refuse_unknown_options(env, options)


def default_settings(env: str) -> DefaultSettings:
    """The settings that fit a task, by its name. The task is not built, but modules are imported.

    Nothing is known in advance about the observations of a Gymnasium environment or the scale of
    its rewards.
    """
    if _is_hosted(env):
        return DefaultSettings("ppo", encoder="auto", normalise_rewards=True)
    return DefaultSettings()


def _is_hosted(env: str) -> bool:
    return is_gymnasium(env) and jax_task(env) is None


@functools.lru_cache(8)  # the spaces are known only once an environment is built, perhaps slowly
def _gymnasium_task(name: str, options: str, _defined: Hashable) -> GymnasiumTask:
    return gymnasium_task(name, json.loads(options))
