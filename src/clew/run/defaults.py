"""What a run's settings are where they are left out, by its task."""

from collections.abc import Collection
from typing import Any, NamedTuple

from clew.agents.network import NetworkConfig
from clew.envs.wrappers import WrapperConfig
from clew.interact import default_settings
from clew.interact.task import DefaultSettings
from clew.memory import options_of

ENV = "tmaze"
"""The default task."""
OWN = "a2c"
"""The algorithm of "auto" on clew's own tasks, whose studies use it, whatever is given."""


MEMORY_OPTIONS = {"hidden_size": 64, "num_layers": 2}
"""The default options of memories, as far as they have them."""


class DefaultOptions(dict[str, Any]):
    """Options that were left out; another task or memory does not inherit them."""


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
    chosen, fit = algorithm, DefaultSettings()
    if algorithm == "auto":
        chosen, settings = choose_algorithm(env, given), default_settings(env)
        fit = settings if chosen == settings.algorithm else fit
    return Defaults(
        chosen,
        options,
        NetworkConfig() if fit.encoder is None else NetworkConfig(encoder=fit.encoder),
        WrapperConfig(normalise_rewards=fit.normalise_rewards),
    )


def memory_defaults(memory: str) -> DefaultOptions:
    """The options of a registered memory where they are left out."""
    known = options_of(memory)
    return DefaultOptions({n: value for n, value in MEMORY_OPTIONS.items() if n in known})


def choose_algorithm(env: str, given: Collection[str]) -> str:
    """The algorithm that "auto" stands for.

    Args:
        env: the task.
        given: the learners whose settings are not their defaults.
    """
    fit = default_settings(env).algorithm
    if fit == OWN:
        return fit
    return next((name for name in given if name != fit), fit)
