"""The default settings of a run, by its task."""

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
"""The algorithm of "auto" on clew's own tasks, whose studies use it, with any settings."""


MEMORY_OPTIONS = {"hidden_size": 64, "num_layers": 2}
"""The default options of memories that have such options."""


class DefaultOptions(dict[str, Any]):
    """Options that were chosen as defaults; another task or memory does not inherit them."""


class Defaults(NamedTuple):
    """Settings that a task decides."""

    algorithm: str
    env_options: dict[str, Any]
    network: NetworkConfig
    wrappers: WrapperConfig


def defaults_for(env: str, algorithm: str, given: Collection[str]) -> Defaults:
    """The values of settings that are left out.

    The error of the value grows with the rewards, and then its gradient dominates the policy's (see
    docs/training.md). So if "auto" chooses for an environment of unknown reward scale, rewards are
    normalised, and the encoder is chosen to fit the observations.

    Args:
        env: the task.
        algorithm: the requested one, or "auto".
        given: the learners whose settings differ from their defaults.
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
    """The default options of a registered memory."""
    known = options_of(memory)
    return DefaultOptions({n: value for n, value in MEMORY_OPTIONS.items() if n in known})


def choose_algorithm(env: str, given: Collection[str]) -> str:
    """The algorithm that "auto" stands for; `given` is as in `defaults_for`."""
    fit = default_settings(env).algorithm
    if fit == OWN:
        return fit
    return next((name for name in given if name != fit), fit)
