"""The settings of asynchronous training."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clew.agents.learners import LEARNERS, Learner, make_learner
from clew.errors import Settings, UserError, require_at_least, require_rate
from clew.run.cluster import check_address

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

PLACE = ("ray", "ray_timeout")
"""Settings of where actors run. No result depends on them; a run may resume elsewhere."""


@dataclass(frozen=True)
class AsyncConfig(Settings):
    """How actors and learner share the work; used only with runner async."""

    actors: int = 2
    """Number of processes that act, each in num_envs / actors environments, which it steps
    itself."""
    queue: int = 1
    """Rollouts that an actor may be ahead of the learner before it waits; 0 makes actors and
    learner take turns."""
    max_lag: int = 4
    """Greatest number of updates between the parameters that gathered a rollout and those that
    learn from it. An actor that would exceed it waits; if a rollout is older nevertheless, because
    its actor is slow, it is dropped."""
    serial: bool = False
    """For debugging: one actor in the learner's process, which takes turns with the learner. This
    gives the results of the synchronous runner with the asynchronous code. The other settings here
    then have no effect."""
    ray: str = ""
    """Actors on a Ray cluster: auto, HOST:PORT or ray://HOST:PORT, or local, which starts a cluster
    on this machine for the run. By default actors are processes on this machine."""
    ray_timeout: float = 300.0
    """Seconds to wait for a node with free CPUs for the actors before the run ends."""

    @property
    def ahead(self) -> int:
        """How many rollouts of an actor may still be waiting when it begins another."""
        return min(self.queue, self.max_lag)

    def validate(self) -> None:
        require_at_least("asynchronous.actors", self.actors, 1)
        require_at_least("asynchronous.queue", self.queue, 0)
        require_at_least("asynchronous.max_lag", self.max_lag, 0)
        require_rate("asynchronous.ray_timeout", self.ray_timeout, positive=True)
        if self.ray:
            check_address(self.ray)
        if self.ray and self.serial:
            raise UserError(
                f"asynchronous.serial acts in this process and asynchronous.ray {self.ray!r} on a "
                "cluster: choose one of them"
            )


def check_async(config: "TrainConfig", runners: tuple[str, ...], learner: Learner) -> None:
    """Refuses settings that cannot be trained asynchronously, if the runner is async.

    Raises:
        UserError: naming the setting, its value and what was expected.
    """
    actors, address = config.asynchronous.actors, config.asynchronous.ray
    if config.runner != "async":
        if address:
            raise UserError(f"actors on a Ray cluster ({address}) need runner async, got sync")
        return
    if config.runner not in runners:
        raise UserError(
            f"runner async is for Gymnasium environments; {config.env} is written in JAX, where "
            "acting and learning are one compiled program"
        )
    if not learner.gathering.tolerates_lag:
        known = {name: make_learner(name, kind.settings(), 1) for name, kind in LEARNERS.items()}
        fit = " or ".join(repr(n) for n, one in known.items() if one.gathering.tolerates_lag)
        raise UserError(f"runner async needs algorithm {fit}, got {config.algorithm!r}")
    for name, value, expected in (
        ("seeds", config.seeds, 1),
        ("host.processes", config.host.processes, 0),
    ):
        if value != expected:
            raise UserError(f"runner async needs {name} {expected!r}, got {value!r}")
    if not config.asynchronous.serial and config.learning.num_envs % actors:
        raise UserError(
            f"asynchronous.actors must divide num_envs, got {actors} actors for "
            f"{config.learning.num_envs} environments"
        )
