"""Pools of actors, wherever they run, behind one interface."""

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
    """What an actor gathered, and how."""

    version: int
    """Of the parameters that chose the actions."""
    actor: int
    gathered: Gathered
    seconds: float
    """From the end of the actor's previous rollout to that of this one."""
    waited: float
    """Of these, those in which the actor waited for the learner."""


class ActorPool(Protocol):
    """Actors that gather rollouts with the newest parameters they know of.

    The pool survives faults of actors and of their environments, within the run's budget; it never
    returns a half-gathered rollout.
    """

    dropped: int
    """Rollouts so far that were too old to be learned from."""

    def publish(self, version: int, latest: ActorParams) -> None:
        """Hands new parameters to all actors; the first call starts them.

        The rollouts of the last `take` count as learned from.
        """
        ...

    def take(self, count: int) -> list[ActorRollout]:
        """Waits for `count` rollouts, and returns those that came first, by actor.

        Their arrays may be overwritten after the next `publish`.

        Raises:
            EnvironmentFault: one that the run does not survive.
            UserError: an actor was asked for something impossible.
        """
        ...

    def close(self) -> None:
        """Ends all actors within a few seconds, whatever they are doing."""
        ...


class Ready(Generic[Owner]):
    """Rollouts that the learner has not taken yet, in the order in which they came.

    Args:
        max_lag: greatest number of updates between acting and learning.
        consecutive: take one rollout of every actor, so that each continues the actor's last one.
            None is then too old, as without it the next one would continue another: only an actor
            that was started anew, behind the rollouts of the one before it, may lag by more.
    """

    def __init__(self, max_lag: int, consecutive: bool = False):
        self._max_lag, self._consecutive = max_lag, consecutive
        self._pairs: list[tuple[Owner, ActorRollout]] = []

    def enough(self, count: int) -> bool:
        """Whether there are so many to take."""
        return len(self._next(count)) == count

    def add(self, owner: Owner, rollout: ActorRollout) -> None:
        """One more, and whose it is."""
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
        """The first ones: whose they are, and they themselves by actor."""
        places = self._next(count)
        taken = [self._pairs[place] for place in places]
        self._pairs = [pair for place, pair in enumerate(self._pairs) if place not in places]
        rollouts = sorted((rollout for _, rollout in taken), key=lambda rollout: rollout.actor)
        return [owner for owner, _ in taken], rollouts

    def _next(self, count: int) -> list[int]:
        """The places of the first ones, or of the first one of each actor."""
        if not self._consecutive:
            return list(range(min(count, len(self._pairs))))
        actors = [rollout.actor for _, rollout in self._pairs]
        return [actors.index(actor) for actor in dict.fromkeys(actors)][:count]


class SerialPool(ActorPool):
    """One actor, in this process, which acts when it is asked to.

    Args:
        spec: all environments of the run.
        log: called with a line for every fault that the run survived.
    """

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
