"""The settings of asynchronous training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clew.errors import UserError, require_at_least

if TYPE_CHECKING:
    from clew.run.config import TrainConfig


@dataclass(frozen=True)
class AsyncConfig:
    """How actors and learner share the work; these count only with runner async."""

    actors: int = 2
    """Processes that act, each in num_envs / actors environments, which it steps itself."""
    queue: int = 1
    """Rollouts of an actor that it may be ahead of the learner: while those are being learned
    from, or wait for it, the actor gathers one more; then it waits. 0 makes actors and learner
    work by turns."""
    max_lag: int = 4
    """Greatest number of updates between the parameters that a rollout was gathered with and those
    that learn from it. An actor that would exceed it waits; what has been overtaken nevertheless,
    because its actor is slow, is dropped."""
    serial: bool = False
    """One actor inside the process that learns, by turns with it: what the synchronous runner
    computes, with the parts of this one, for finding faults. The other settings count for
    nothing."""

    @property
    def ahead(self) -> int:
        """Rollouts of an actor that may be unlearned when it begins another."""
        return min(self.queue, self.max_lag)

    def validate(self) -> None:
        """Refuses impossible settings.

        Raises:
            UserError: naming the setting, its value and what was expected.
        """
        require_at_least("asynchronous.actors", self.actors, 1)
        require_at_least("asynchronous.queue", self.queue, 0)
        require_at_least("asynchronous.max_lag", self.max_lag, 0)


def check_async(config: "TrainConfig", of_others: bool) -> None:
    """Refuses what cannot be trained asynchronously.

    Args:
        config: of a run with runner async.
        of_others: whether its task is an environment of others.

    Raises:
        UserError: naming the setting, its value and what was expected.
    """
    actors = config.asynchronous.actors
    if not of_others:
        raise UserError(
            f"runner async is for environments of others; {config.env} is written in JAX, where "
            "acting and learning are one compiled program"
        )
    for name, value, expected in (
        ("algorithm", config.algorithm, "ppo"),
        ("seeds", config.seeds, 1),
        ("host.processes", config.host.processes, 0),
    ):
        if value != expected:
            raise UserError(f"runner async needs {name} {expected!r}, got {value!r}")
    if not config.asynchronous.serial and config.ppo.num_envs % actors:
        raise UserError(
            f"asynchronous.actors must divide num_envs, got {actors} actors for "
            f"{config.ppo.num_envs} environments"
        )
