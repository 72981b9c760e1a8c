"""The learning algorithms, by name."""

import dataclasses
from typing import TYPE_CHECKING

from clew.agents.learners.a2c import A2C, A2CConfig
from clew.agents.learners.base import Learner, LearnerConfig
from clew.agents.learners.ppo import PPO, PPOConfig

LEARNERS: dict[str, type[Learner]] = {"a2c": A2C, "ppo": PPO}

if TYPE_CHECKING:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class LearnerSettings:
        """The settings of every learner, each under its name in `LEARNERS`."""

        a2c: A2CConfig = A2CConfig()
        ppo: PPOConfig = PPOConfig()
else:
    LearnerSettings = dataclasses.make_dataclass(
        "LearnerSettings",
        [
            (
                name,
                learner.settings,
                dataclasses.field(
                    default_factory=learner.settings,
                    metadata={"help": f"Settings of {name}; they count only with that algorithm."},
                ),
            )
            for name, learner in LEARNERS.items()
        ],
        namespace={"__module__": __name__},
        kw_only=True,
        frozen=True,
    )


def make_learner(algorithm: str, config: LearnerConfig, updates: int) -> Learner:
    """A learner by name.

    Args:
        algorithm: one of `LEARNERS`.
        config: its settings.
        updates: of the whole run, for schedules.
    """
    learner: type = LEARNERS[algorithm]
    return learner(config, updates)


def describes_updates(metric: str) -> bool:
    """Whether a metric describes updates, as the memory's do; the others describe episodes."""
    known = any(metric in learner.metrics for learner in LEARNERS.values())
    return known or metric.startswith("memory.")
