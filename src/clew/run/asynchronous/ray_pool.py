"""Actors on a Ray cluster."""

import time
from collections.abc import Callable
from typing import Any, NoReturn

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.vector import CLOSE_SECONDS
from clew.errors import UserError
from clew.run.asynchronous.acting import ActorParams, ActorSpec
from clew.run.asynchronous.pool import Ready, Rollout
from clew.run.asynchronous.processes import LOOK_SECONDS
from clew.run.asynchronous.ray_actor import Made
from clew.run.asynchronous.ray_running import Gone, RunningActor
from clew.run.cluster import import_ray
from clew.run.hosted import FaultBudget

ROOM_SECONDS = 10.0
"""How long an actor waits for room before that is told."""


class RayPool:
    """Actors in processes of a Ray cluster, each with an equal share of the environments.

    Every actor takes one CPU of the cluster, wherever one is free. Parameters are put into Ray's
    object store once for each version, which takes them once to each node; rollouts come back
    through it. An actor is asked for as many rollouts as it may be ahead of the learner, and told
    of newer parameters in the meantime, so that it never waits for an answer between them.

    Args:
        shares: of the actors.
        tell: is told of faults that the run survived, and of actors that find no room.

    Raises:
        UserError: if this process is not connected to a cluster.
    """

    def __init__(self, shares: list[ActorSpec], tell: Callable[[str], None]):
        self._ray = import_ray()
        if not self._ray.is_initialized():
            raise UserError("this process is not connected to Ray: call ray.init() before")
        self._shares, self._config = shares, shares[0].config
        settings = self._config.asynchronous
        self._ahead = settings.ahead
        self._budget, self._tell = FaultBudget(self._config.host.restarts, tell), tell
        self._running: list[RunningActor] = []
        self._ready = Ready[RunningActor](settings.max_lag)
        self._taken: list[RunningActor] = []
        self._newest: tuple[int, Any] = (-1, None)
        self._lost_nodes: set[str] = set()
        self._told_of: set[int] = set()
        self._short: float | None = None
        self.dropped = 0

    def publish(self, version: int, published: ActorParams) -> None:
        """See `ActorPool`."""
        self._newest = version, self._ray.put(published)
        if not self._running:
            self._running = [RunningActor(self._ray, share) for share in self._shares]
        for running in self._running:
            running.tell(*self._newest)
        self._learned(self._taken)
        self._taken = []

    def take(self, count: int) -> list[Rollout]:
        """See `ActorPool`."""
        while True:
            late = self._ready.drop(self._newest[0])
            self.dropped += len(late)
            self._learned(late)
            if len(self._ready) >= count:
                break
            self._listen()
            self._look_for_room(count)
        self._taken, rollouts = self._ready.take(count)
        return rollouts

    def close(self) -> None:
        """See `ActorPool`."""
        if self._ray.is_initialized():  # else the connection was lost, and calls wait for another
            ends = [end for running in self._running for end in running.stop()]
            if ends:
                self._ray.wait(ends, num_returns=len(ends), timeout=CLOSE_SECONDS)
            for running in self._running:
                running.kill()
        self._running = []

    @property
    def actors(self) -> list[RunningActor]:
        """The actors."""
        return self._running

    def _learned(self, owners: list[RunningActor]) -> None:
        """Has actors go on whose rollouts were learned from, or dropped."""
        for running in owners:
            running.held -= 1
        for running in owners:
            self._fill(running)

    def _fill(self, running: RunningActor) -> None:
        running.fill(self._ahead, *self._newest, self._budget.used)

    def _listen(self) -> None:
        """Hears what actors have to say, for a moment, and finds out whether they live."""
        owners = {ref: place for place, r in enumerate(self._running) for ref in r.waits_for()}
        references = list(owners)
        if not references:
            time.sleep(LOOK_SECONDS)
        elif self._ray.wait(references, timeout=LOOK_SECONDS)[0]:
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
            for reference in ready:
                self._attend(owners[reference], reference)
        for place, running in enumerate(self._running):
            if gone := running.look():
                self._replace(place, gone)

    def _attend(self, place: int, reference: Any) -> None:
        running = self._running[place]
        if reference not in running.waits_for():
            return  # of an actor that has been replaced, or forgotten after a fault
        started, said = running.started, running.heard(reference)
        if isinstance(said, Made):
            made = Rollout(said.version, running.number, *said[1:])
            self._ready.add(running, made)
        elif isinstance(said, EnvironmentFault):
            self._budget.spend(said, "opened anew", f"{running.words}: {said}")
            running.forget()
        elif isinstance(said, UserError):
            raise said
        elif said is not None:
            gone = said if isinstance(said, Gone) else Gone(f"raised:\n{said}")
            self._replace(place, gone)
            return
        elif not started and (self._budget.used or place in self._told_of):
            self._tell(f"{running.words} is at work")
        self._fill(running)

    def _replace(self, place: int, gone: Gone) -> None:
        running = self._running[place]
        running.kill()
        name = self._config.env
        fault = EnvironmentFault(
            f"{name}: {running.words} {gone.why}", env=name, field="worker", lost=True
        )
        if gone.fatal:
            raise fault
        if gone.node not in self._lost_nodes:
            self._budget.spend(fault, "started anew")
        elif running.started:  # a node that is lost is one fault
            self._tell(f"{fault}; started anew")
        self._lost_nodes |= {gone.node} - {""}
        self._running[place] = RunningActor(self._ray, self._shares[place])
        self._told_of.discard(place)

    def _look_for_room(self, count: int) -> None:
        """Tells of actors that wait for a node, and raises if the run waits for them too long."""
        now = time.monotonic()
        waiting = [running for running in self._running if not running.started]
        at_work = len(self._running) - len(waiting)
        if not waiting or at_work * (self._ahead + 1) >= count:
            self._short = None
        elif self._short is None:
            self._short = now
        numbers = [running.number for running in waiting]
        if {r.number for r in waiting if now - r.since > ROOM_SECONDS} - self._told_of:
            self._told_of |= set(numbers)
            waits = "the run waits" if self._short else f"the run goes on with {at_work}"
            self._tell(f"{self._no_room(numbers)}; {waits}")
        if self._short and now - self._short > self._config.asynchronous.ray_timeout:
            self._give_up(numbers)

    def _give_up(self, numbers: list[int]) -> NoReturn:
        seconds = self._config.asynchronous.ray_timeout
        raise EnvironmentFault(
            f"{self._no_room(numbers)}, and the run has stood still for {seconds:g} s "
            "(asynchronous.ray_timeout): add nodes, or take fewer asynchronous.actors",
            env=self._config.env,
            field="worker",
            lost=True,
        )

    def _no_room(self, numbers: list[int]) -> str:
        has, free = (
            int(resources().get("CPU", 0))
            for resources in (self._ray.cluster_resources, self._ray.available_resources)
        )
        nodes = sum(node["Alive"] for node in self._ray.nodes())
        which = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
        why = "could not be started yet" if free else "found no room yet"
        return (
            f"actor{'s' * (len(numbers) > 1)} {which} of {len(self._running)} {why}: the cluster "
            f"has {has} CPUs on {nodes} nodes, {free} of them free, and an actor takes one"
        )
