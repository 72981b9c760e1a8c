"""Actors on a Ray cluster: the learner's pool, and the learner's view of each actor."""

import contextlib
import pickle
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.processes import CLOSE_SECONDS
from clew.errors import UserError
from clew.run import cluster
from clew.run.asynchronous.actor import ActorParams, ActorSpec
from clew.run.asynchronous.pool import ActorPool, ActorRollout, Ready
from clew.run.asynchronous.processes import LOOK_SECONDS
from clew.run.asynchronous.ray_actor import ASIDE, Made, RayActor, installed
from clew.run.cluster import import_ray
from clew.run.hosted import FaultBudget

ROOM_SECONDS = 10.0
"""How long an actor waits for a free CPU before that is logged."""
LOST_NODE = re.compile(r"node has died. Node Id: (\w+)")
ANSWER_SECONDS = 30.0
"""Least time that an actor has to answer, even if its environments have less: its node is shared,
and Ray gives its processes a low priority."""
LOOK_FRACTION, LOOK_LEAST = 0.1, 0.2
"""Time between two checks of an actor: this fraction of its patience, but at least this many
seconds."""


class Gone(NamedTuple):
    """Why an actor has to be replaced."""

    why: str
    node: str = ""
    """The node that was lost with it, or ""."""
    fatal: bool = False
    """Whether a replacement would fail as well."""


class RunningActor:
    """An actor process of the cluster, from its start to its end.

    Ray retries neither tasks nor actors: that is left to the pool.
    """

    def __init__(self, ray: Any, spec: ActorSpec):
        self._ray, self.number = ray, spec.number
        host = spec.config.host
        # Environments with their own processes: the actor itself waits for them and ends them.
        self._patience = host.timeout + CLOSE_SECONDS * spec.task.environment.vector
        options = {
            "num_cpus": 1,
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {ASIDE: 2},
            "scheduling_strategy": "SPREAD",
            "runtime_env": {"env_vars": cluster.environment(JAX_PLATFORMS="cpu")},
        }
        self._handle = ray.remote(**options)(RayActor).remote(pickle.dumps(spec), self._patience)
        self._where = self._handle.where.remote()
        self._look: Any = None
        self._asked = self.since = time.monotonic()
        self._unreachable: float | None = None
        self._tasks: deque[Any] = deque()
        self.held = 0
        """Number of rollouts that have arrived and were not learned from yet."""
        self.node, self.words = "", f"actor {self.number}"

    @property
    def started(self) -> bool:
        """Whether its process has answered."""
        return bool(self.node)

    def waits_for(self) -> list[Any]:
        """References that the pool has to wait for."""
        if not self.started:
            return [self._where]
        return [x for x in (*list(self._tasks)[:1], self._look) if x is not None]

    def send(self, version: int, latest: Any) -> None:
        """Sends parameters, as a reference, for its next rollouts."""
        if self._tasks:
            self._handle.receive.remote(version, latest)

    def fill(self, ahead: int, version: int, latest: Any, opening: int) -> None:
        """Requests as many rollouts as the actor may be ahead of the learner."""
        able = self.started and self._unreachable is None
        while able and len(self._tasks) + self.held <= ahead:
            self._tasks.append(self._handle.rollout.remote(version, latest, opening))

    def forget(self) -> None:
        """Forgets the requested rollouts, which will not arrive."""
        self._tasks.clear()

    def heard(self, reference: Any) -> Made | UserError | str | Gone | None:
        """The value of a reference that is ready.

        Returns:
            A rollout or a failure, as `RayActor.rollout` returns it, or that the actor is gone.
        """
        try:
            return self._read(reference, self._ray.get(reference))
        except self._ray.exceptions.RayTaskError as error:
            how = "raised" if self.started else "could not start"
            return Gone(f"{how}: {_last_line(error)}", fatal=not self.started)
        except self._ray.exceptions.RuntimeEnvSetupError as error:
            return Gone(f"could not start: {_last_line(error)}", fatal=True)
        except self._ray.exceptions.ActorDiedError as error:
            return self._died(str(error))
        except self._ray.exceptions.RayError as error:
            if not self.started:
                return Gone(f"was lost while it started: {_last_line(error)}")
            # Its node may have vanished, which Ray notices only after a while: ask until it does.
            self._unreachable, self._look = self._unreachable or time.monotonic(), None
            self.forget()
            # If it is alive, its environments start anew: the rollout before is lost.
            self._handle.close.remote()
            return None

    def look(self) -> Gone | None:
        """Asks now and then whether it is alive; returns why it has to be replaced, if it must."""
        now = time.monotonic()
        if not self.started:
            return None
        seconds = max(self._patience, ANSWER_SECONDS)
        owes = self._look is not None or self._unreachable is not None
        if owes and now - (self._unreachable or self._asked) > seconds:
            return Gone(f"hangs: it did not answer within {seconds:g} s")
        fraction = 0.0 if self._unreachable else LOOK_FRACTION
        if self._look is None and now - self._asked > max(LOOK_LEAST, fraction * self._patience):
            self._look, self._asked = self._handle.look.remote(), now
        return None

    def stop(self) -> list[Any]:
        """Asks it to end; returns references that are ready once its environments are closed."""
        if not self.started or self._unreachable:
            return []
        self._handle.stop.remote()
        return [self._handle.close.remote()]

    def kill(self) -> None:
        """Ends its process, even if it is busy."""
        self._unreachable = time.monotonic()
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._handle)

    def _read(self, reference: Any, said: Any) -> Made | UserError | str | Gone | None:
        if reference == self._where:
            return self._arrived(*said)
        if reference == self._look:
            self._look = self._unreachable = None
            return Gone(f"hangs: {said}") if said else None
        self._tasks.popleft()
        self.held += isinstance(said, Made)
        return said

    def _arrived(self, node: str, words: str, versions: dict[str, str]) -> Gone | None:
        self.node, self.words = node, f"actor {self.number} ({words})"
        own = installed()
        for name in own:
            if own[name] != versions.get(name):
                other = versions.get(name) or "none"
                why = f"has {name} {other}, and the learner {name} {own[name]}"
                return Gone(f"{why}: install the same on all nodes", fatal=True)
        return None

    def _died(self, error: str) -> Gone:
        if "creation task" in error and not self.started:
            return Gone(f"could not start: {_last_line(error)}", fatal=True)
        if lost := LOST_NODE.search(error):
            return Gone("was lost with its node", node=lost[1])
        _, _, why = error.partition("The actor is dead because ")
        return Gone(f"ended ({(why or error).partition('. ')[0].strip().rstrip('.')})")


class RayPool(ActorPool):
    """Actors in processes of a Ray cluster, each with an equal share of the environments.

    Every actor takes one CPU of the cluster, on any node. Parameters are put into Ray's object
    store once for each version, and sent once to each node; rollouts come back through it. As many
    rollouts are requested from an actor as it may be ahead of the learner, and newer parameters are
    sent in the meantime, so that it never waits for an answer between two rollouts.

    `log` is as in `FaultBudget`, and called for actors that find no free CPU.

    Raises:
        UserError: if this process is not connected to a cluster.
    """

    def __init__(self, specs: list[ActorSpec], log: Callable[[str], None]):
        self._ray = import_ray()
        if not self._ray.is_initialized():
            raise UserError("this process is not connected to Ray: call ray.init() first")
        self._specs, self._config = specs, specs[0].config
        settings = self._config.asynchronous
        self._ahead = settings.ahead
        self._budget, self._log = FaultBudget(self._config.host.restarts, log), log
        self._running: list[RunningActor] = []
        consecutive = self._config.learner.gathering.consecutive
        self._ready = Ready[RunningActor](settings.max_lag, consecutive)
        self._taken: list[RunningActor] = []
        self._newest: tuple[int, Any] = (-1, None)
        self._lost_nodes: set[str] = set()
        self._logged: set[int] = set()
        self._short: float | None = None
        self.dropped = 0

    def publish(self, version: int, latest: ActorParams) -> None:
        self._newest = version, self._ray.put(latest)
        if not self._running:
            self._running = [RunningActor(self._ray, spec) for spec in self._specs]
        for running in self._running:
            running.send(*self._newest)
        self._learned(self._taken)
        self._taken = []

    def take(self, count: int) -> list[ActorRollout]:
        while True:
            late = self._ready.drop(self._newest[0])
            self.dropped += len(late)
            self._learned(late)
            if self._ready.enough(count):
                break
            self._listen()
            self._look_for_room(count)
        self._taken, rollouts = self._ready.take(count)
        return rollouts

    def close(self) -> None:
        if self._ray.is_initialized():  # else the connection was lost, and calls would block
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
        """Lets actors continue after their rollouts were learned from or dropped."""
        for running in owners:
            running.held -= 1
        for running in owners:
            self._fill(running)

    def _fill(self, running: RunningActor) -> None:
        running.fill(self._ahead, *self._newest, self._budget.used)

    def _listen(self) -> None:
        """Reads messages of actors for a moment, and checks whether the actors are alive."""
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
            return  # from an actor that was replaced, or forgotten after a fault
        started, said = running.started, running.heard(reference)
        if isinstance(said, Made):
            made = ActorRollout(said.version, running.number, *said[1:])
            self._ready.add(running, made)
            self._budget.stepped(running.number)
        elif isinstance(said, EnvironmentFault):
            text = f"{running.words}: {said}"
            self._budget.spend(said, "reopened", text, running.number)
            running.forget()
        elif isinstance(said, UserError):
            raise said
        elif said is not None:
            gone = said if isinstance(said, Gone) else Gone(f"raised:\n{said}")
            self._replace(place, gone)
            return
        elif not started and (self._budget.used or place in self._logged):
            self._log(f"{running.words} is at work")
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
            self._budget.spend(fault, "restarted", actor=None)
        elif running.started:  # a lost node counts as one fault
            self._log(f"{fault}; restarted")
        self._lost_nodes |= {gone.node} - {""}
        self._running[place] = RunningActor(self._ray, self._specs[place])
        self._logged.discard(place)

    def _look_for_room(self, count: int) -> None:
        """Logs actors that wait for a node, and raises if the run has waited too long for them."""
        now = time.monotonic()
        waiting = [running for running in self._running if not running.started]
        at_work = len(self._running) - len(waiting)
        if not waiting or at_work * (self._ahead + 1) >= count:
            self._short = None
        elif self._short is None:
            self._short = now
        numbers = [running.number for running in waiting]
        if {r.number for r in waiting if now - r.since > ROOM_SECONDS} - self._logged:
            self._logged |= set(numbers)
            waits = "the run waits" if self._short else f"the run continues with {at_work}"
            self._log(f"{self._no_room(numbers)}; {waits}")
        seconds = self._config.asynchronous.ray_timeout
        if self._short and now - self._short > seconds:
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


def _last_line(error: Any) -> str:
    return str(error).strip().splitlines()[-1].strip()
