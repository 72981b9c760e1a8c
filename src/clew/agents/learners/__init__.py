"""The learning algorithms, by name."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clew.agents.learners.a2c import A2C, A2CConfig
from clew.agents.learners.base import Learner, LearnerConfig, require_learner
from clew.agents.learners.ppo import PPO, PPOConfig
from clew.agents.learners.pqn import PQN, PQNConfig
from clew.agents.learners.r2d2 import R2D2, R2D2Config
from clew.agents.learners.sac import SAC, SACConfig
from clew.errors import call_own
from clew.names import find

LEARNERS: dict[str, type[Learner]] = {
    "a2c": A2C,
    "ppo": PPO,
    "pqn": PQN,
    "r2d2": R2D2,
    "sac": SAC,
}

OWN_METRIC = "learner."
"""The prefix, in rows, of metrics of a user's learner that no library learner has."""


def _about(kind: type) -> str:
    """The docstring of a class, on one line."""
    return " ".join((kind.__doc__ or "").split())


if TYPE_CHECKING:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class LearnerSettings:
        """The settings of every learner, each under its name in `LEARNERS`."""

        a2c: A2CConfig = A2CConfig()
        ppo: PPOConfig = PPOConfig()
        pqn: PQNConfig = PQNConfig()
        r2d2: R2D2Config = R2D2Config()
        sac: SACConfig = SACConfig()
else:
    LearnerSettings = dataclasses.make_dataclass(
        "LearnerSettings",
        [
            (
                name,
                learner.settings,
                dataclasses.field(
                    default_factory=learner.settings,
                    metadata={"help": f"{_about(learner.settings)} Used only with {name}."},
                ),
            )
            for name, learner in LEARNERS.items()
        ],
        namespace={"__module__": __name__},
        kw_only=True,
        frozen=True,
    )


def find_learner(algorithm: str) -> type[Learner]:
    """The class of a learner, one of `LEARNERS` or "package.module:Class".

    Raises:
        UserError: if there is no learner of that name, or the class lacks a member of a learner.
    """
    learner = find("algorithm", algorithm, LEARNERS)
    if algorithm not in LEARNERS:
        require_learner(algorithm, learner)
    return learner


def learner_settings(algorithm: str, options: Mapping[str, Any]) -> LearnerConfig:
    """The settings of a learner of your own.

    Args:
        algorithm: "package.module:Class".
        options: the settings that differ from their defaults.

    Raises:
        UserError: as in `find_learner`, or for an option that its settings do not have.
    """
    settings: LearnerConfig = call_own(algorithm, find_learner(algorithm).settings, **options)
    return settings


def make_learner(algorithm: str, config: LearnerConfig, updates: int) -> Learner:
    """A learner by name.

    Args:
        algorithm: one of `LEARNERS`, or "package.module:Class".
        config: its settings.
        updates: number in the whole run, for schedules.
    """
    learner: type = find_learner(algorithm)
    return learner(config, updates)


def describes_updates(metric: str) -> bool:
    """Whether a metric describes updates, as the memory's do; the others describe episodes.

    Metrics of a user's learner that no library learner has are called "learner.NAME" in a run's
    rows, which are read without importing that learner.
    """
    known = any(metric in learner.metrics for learner in LEARNERS.values())
    return known or metric.startswith(("memory.", OWN_METRIC))
