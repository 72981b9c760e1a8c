"""Pools of actors behind one interface, independent of where they run."""

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import jax
import numpy as np

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.run.asynchronous.actor import Actor, ActorParams, ActorSpec, Gathered
from clew.run.asynchronous.heartbeat import HEARTBEAT_BYTES, Heartbeat
from clew.run.hosted import FaultBudget

Owner = TypeVar("Owner")


class ActorRollout(NamedTuple):
    """A rollout from an actor, and how it was gathered."""

    version: int
    """Version of the parameters that chose the actions."""
    actor: int
    gathered: Gathered
    seconds: float
    """From the end of the actor's previous rollout to that of this one."""
    waited: float
    """Seconds of these in which the actor waited for the learner."""


class ActorPool(Protocol):
    """Actors that gather rollouts with the newest parameters that they have received.

    The pool survives faults of actors and of their environments, within the run's budget; it never
    returns an incomplete rollout.
    """

    dropped: int
    """Number of rollouts so far that were too old to learn from."""

    def publish(self, version: int, latest: ActorParams) -> None:
        """Gives new parameters to all actors; the first call starts them.

        The rollouts of the last `take` are then regarded as learned from.
        """
        ...

    def take(self, count: int) -> list[ActorRollout]:
        """Waits for `count` rollouts, and returns the first ones, sorted by actor.

        Their arrays may be overwritten after the next `publish`.

        Raises:
            EnvironmentFault: a fault that the run does not survive.
            UserError: the settings are impossible for an actor.
        """
        ...

    def close(self) -> None:
        """Ends all actors within a few seconds, even if they are busy."""
        ...


class Ready(Generic[Owner]):
    """Rollouts that the learner has not taken yet, in the order of arrival.

    Args:
        max_lag: greatest number of updates between acting and learning.
        consecutive: take one rollout of every actor, so that each continues the actor's last one.
            Then none is dropped for its age, since the next rollout has to continue it. The lag
            can exceed the limit only for an actor that was restarted and comes after the rollouts
            of its predecessor.
    """

    def __init__(self, max_lag: int, consecutive: bool = False):
        self._max_lag, self._consecutive = max_lag, consecutive
        self._pairs: list[tuple[Owner, ActorRollout]] = []

    def enough(self, count: int) -> bool:
        """Whether `count` rollouts can be taken."""
        return len(self._next(count)) == count

    def add(self, owner: Owner, rollout: ActorRollout) -> None:
        """Adds a rollout of an owner."""
        self._pairs.append((owner, rollout))

    def drop(self, version: int) -> list[Owner]:
        """Drops rollouts that are too old at this version; returns their owners."""
        if self._consecutive:
            return []
        oldest = version - self._max_lag
        late = [owner for owner, rollout in self._pairs if rollout.version < oldest]
        self._pairs = [pair for pair in self._pairs if pair[1].version >= oldest]
        return late

    def take(self, count: int) -> tuple[list[Owner], list[ActorRollout]]:
        """The owners of the first rollouts, and these rollouts sorted by actor."""
        places = self._next(count)
        taken = [self._pairs[place] for place in places]
        self._pairs = [pair for place, pair in enumerate(self._pairs) if place not in places]
        rollouts = sorted((rollout for _, rollout in taken), key=lambda rollout: rollout.actor)
        return [owner for owner, _ in taken], rollouts

    def _next(self, count: int) -> list[int]:
        """The places of the first rollouts, or of the first one of each actor."""
        if not self._consecutive:
            return list(range(min(count, len(self._pairs))))
        actors = [rollout.actor for _, rollout in self._pairs]
        return [actors.index(actor) for actor in dict.fromkeys(actors)][:count]


class SerialPool(ActorPool):
    """One actor in this process, which acts on request in all environments of the run."""

    def __init__(self, spec: ActorSpec, log: Callable[[str], None]):
        self._actor = Actor(spec, Heartbeat(np.zeros(HEARTBEAT_BYTES, np.uint8)))
        self._budget = FaultBudget(spec.config.host.restarts, log)
        self._latest: tuple[int, ActorParams] | None = None
        self.dropped = 0

    def publish(self, version: int, latest: ActorParams) -> None:
        self._latest = version, latest

    def take(self, count: int) -> list[ActorRollout]:
        assert self._latest is not None
        version, latest = self._latest
        taken: list[ActorRollout] = []
        while len(taken) < count:
            try:
                gathered = self._actor.rollout(version, latest, self._budget.used)
            except EnvironmentFault as fault:
                self._budget.spend(fault)
                continue
            self._budget.stepped()
            # The actor's next step writes its memory in place.
            own = jax.tree.map(np.array, gathered)
            taken.append(ActorRollout(version, 0, own, 0.0, 0.0))
        return taken

    def close(self) -> None:
        self._actor.close()
