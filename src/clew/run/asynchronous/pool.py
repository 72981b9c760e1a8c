"""Where rollouts come from: actors behind one interface, wherever they are."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import numpy as np

from clew.host.faults import EnvironmentFault
from clew.run.asynchronous.acting import Actor, Gathered, Published, Share
from clew.run.asynchronous.signs import SIGNS_BYTES, Signs
from clew.run.budget import Budget


class Rollout(NamedTuple):
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

    A fault of an actor or of its environments is the pool's to survive, within the run's budget;
    a half-gathered rollout is never handed out.
    """

    dropped: int
    """Rollouts so far that were too old to be learned from."""

    def publish(self, version: int, published: Published) -> None:
        """Hands new parameters to all actors; the first call sets them to work.

        The rollouts of the last `take` count as learned from.
        """
        ...

    def take(self, count: int) -> list[Rollout]:
        """Waits for so many rollouts, and returns those which came first, by actor.

        What they hold may be overwritten after the next `publish`.

        Raises:
            EnvironmentFault: one that is not to be survived, or one too many.
            UserError: an actor was asked for something impossible.
        """
        ...

    def close(self) -> None:
        """Ends all actors within a few seconds, whatever they are at."""
        ...


class SerialPool:
    """One actor, in this process, which acts when it is asked to.

    Args:
        share: all environments of the run.
        tell: is told of faults that the run survived.
    """

    def __init__(self, share: Share, tell: Callable[[str], None]):
        self._actor = Actor(share, Signs(np.zeros(SIGNS_BYTES, np.uint8)))
        self._budget = Budget(share.config.host.restarts, tell)
        self._published: tuple[int, Published] | None = None
        self.dropped = 0

    def publish(self, version: int, published: Published) -> None:
        """See `ActorPool`."""
        self._published = version, published

    def take(self, count: int) -> list[Rollout]:
        """See `ActorPool`; there is no lag."""
        assert self._published is not None
        version, published = self._published
        taken: list[Rollout] = []
        while len(taken) < count:
            try:
                gathered = self._actor.rollout(version, published, self._budget.used)
            except EnvironmentFault as fault:
                self._budget.survive(fault)
                continue
            # The actor's next step writes its memory in place.
            own = jax.tree.map(np.array, gathered)
            taken.append(Rollout(version, 0, own, 0.0, 0.0))
        return taken

    def close(self) -> None:
        """See `ActorPool`."""
        self._actor.close()
