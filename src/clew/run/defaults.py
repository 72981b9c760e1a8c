"""What a run's settings are where they are left out, by its task."""

from collections.abc import Collection
from typing import Any, NamedTuple

from clew.agents.network import NetworkConfig
from clew.envs.wrappers import WrapperConfig
from clew.interact.tasks import of_others

ENV = "tmaze"
"""The default task."""
OWN, OTHERS = "a2c", "ppo"
"""The algorithms that "auto" chooses: on clew's own tasks, whose studies use it, and on Gymnasium
environments, of which nothing is known."""


class DefaultOptions(dict[str, Any]):
    """Options of the default task that were left out; another task does not inherit them."""


class Defaults(NamedTuple):
    """Settings that a task decides."""

    algorithm: str
    env_options: dict[str, Any]
    network: NetworkConfig
    wrappers: WrapperConfig


def defaults_for(env: str, algorithm: str, given: Collection[str]) -> Defaults:
    """The settings that stand in place of those that are left out.

    The value's error grows with the rewards, and its gradient drowns the policy's (see
    docs/training.md): where "auto" chooses for an environment whose rewards nobody knows, they are
    normalised, and the encoder is the one that fits its observations.

    Args:
        env: the task.
        algorithm: as asked for, or "auto".
        given: the learners whose settings are not their defaults.
    """
    options = DefaultOptions(corridor_length=20) if env == ENV else {}
    chosen = choose_algorithm(env, given) if algorithm == "auto" else algorithm
    if algorithm == "auto" and of_others(env) and chosen == OTHERS:
        network, wrappers = NetworkConfig(encoder="auto"), WrapperConfig(normalise_rewards=True)
        return Defaults(chosen, options, network, wrappers)
    return Defaults(chosen, options, NetworkConfig(), WrapperConfig())


def choose_algorithm(env: str, given: Collection[str]) -> str:
    """The algorithm that "auto" stands for.

    Args:
        env: the task.
        given: the learners whose settings are not their defaults.
    """
    if not of_others(env):
        return OWN
    return next((name for name in given if name != OTHERS), OTHERS)
