"""What is taken where a run's settings say nothing, by its task."""

from typing import TYPE_CHECKING, Any

from clew.agents.learners.a2c import A2CConfig
from clew.agents.network import NetworkConfig
from clew.envs.wrappers import WrapperConfig
from clew.interact.tasks import of_others

if TYPE_CHECKING:
    from clew.run.config import TrainConfig


class Unasked(dict[str, Any]):
    """Options of the default task that nobody has asked for."""


NETWORK, WRAPPERS = NetworkConfig(), WrapperConfig()
"""Settings that nobody has asked for; these very objects."""


def choices(config: "TrainConfig") -> dict[str, Any]:
    """The settings that stand in place of those that nobody has asked for.

    The algorithm "auto" is PPO where nothing is known of the task, and its studies' where clew made
    it. The value's error grows with the rewards, and its gradient drowns the policy's (see
    docs/training.md): where their size is unknown, they are scaled.

    Returns:
        Name of the setting to its value.
    """
    found: dict[str, Any] = {}
    if config.env != "tmaze" and isinstance(config.env_options, Unasked):
        found["env_options"] = {}
    if config.algorithm != "auto":
        return found
    if not of_others(config.env) or config.a2c != A2CConfig():
        return found | {"algorithm": "a2c"}
    if config.network is NETWORK:
        found["network"] = NetworkConfig(encoder="auto")
    if config.wrappers is WRAPPERS:
        found["wrappers"] = WrapperConfig(normalise_rewards=True)
    return found | {"algorithm": "ppo"}
