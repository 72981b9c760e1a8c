"""Actors in processes of this machine: the learner's pool, and the code of each process."""

import contextlib
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import connection, util
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.processes import (
    CLOSE_SECONDS,
    LOST,
    end_with_parent,
    leave_stopping_to_parent,
    require_descriptors,
    start_method,
)
from clew.errors import UserError, system_error
from clew.run.asynchronous.actor import (
    Actor,
    ActorParams,
    ActorSpec,
    gathered_template,
    use_one_thread,
)
from clew.run.asynchronous.heartbeat import HEARTBEAT_BYTES, HangDetector, Heartbeat
from clew.run.asynchronous.pool import ActorPool, ActorRollout, Ready
from clew.run.asynchronous.shared import ByteLayout, Versions, as_array, shared_bytes
from clew.run.hosted import FaultBudget
from clew.run.programs import keep_programs

LOOK_SECONDS = 0.2
"""Time between two checks for hanging actors, while the learner waits for rollouts."""
PRELOADED = ["clew.bridges.gymnasium.group", "clew.run.asynchronous.processes"]
Link = Any
"""A `multiprocessing.connection.Connection`, of one type on Unix and another on Windows."""


class RolloutReady(NamedTuple):
    """An actor's message: a rollout is complete in the next slot."""

    version: int
    seconds: float
    waited: float


class Ack(NamedTuple):
    """The learner's message: a rollout of the actor was learned from or dropped."""


class Reopen(NamedTuple):
    """The learner's message after a fault: open the environments again."""

    opening: int


class ActorStart(NamedTuple):
    """Everything that an actor starts with."""

    spec: ActorSpec
    link: Link
    versions: Any
    """Shared bytes of `Versions`."""
    heartbeat: Any
    """Shared bytes of `Heartbeat`."""
    slots: list[Any]
    """Shared bytes, each for one rollout."""
    params: PyTree
    """Shapes of `ActorParams`."""
    gathered: PyTree
    """Shapes of a rollout."""
    opening: int
    cache: str | None
    """Folder of compiled programs."""


def work(start: ActorStart) -> None:
    """Acts until the learner hangs up; errors are sent to the learner, not printed."""
    leave_stopping_to_parent()
    end_with_parent()
    try:
        if start.cache:
            keep_programs(start.cache, seconds=0.1)
        use_one_thread()
        _Worker(start).serve()
    except (EOFError, ConnectionError):
        pass
    except UserError as error:
        _hang_up(start.link, error)
    except Exception:
        _hang_up(start.link, traceback.format_exc())


class _Worker:
    def __init__(self, start: ActorStart):
        self._link, self._opening = start.link, start.opening
        self._heartbeat = Heartbeat(as_array(start.heartbeat))
        self._heartbeat.begin()
        self._versions = Versions(start.versions, ByteLayout(start.params))
        self._layout = ByteLayout(start.gathered)
        self._slots = [as_array(slot) for slot in start.slots]
        self._ahead = len(self._slots) - 1
        self._turn, self._unlearned = 0, 0
        self._actor = Actor(start.spec, self._heartbeat)

    def serve(self) -> None:
        """Gathers rollouts forever."""
        try:
            while True:
                began = time.monotonic()
                # While this actor is too far ahead of the learner.
                while self._unlearned > self._ahead or self._link.poll():
                    self._listen()
                waited = time.monotonic() - began
                version, latest = self._versions.read()
                self._act(version, latest, began, waited)
        finally:
            self._actor.close()

    def _act(self, version: int, latest: ActorParams, began: float, waited: float) -> None:
        try:
            gathered = self._actor.rollout(version, latest, self._opening)
        except EnvironmentFault as fault:
            self._link.send(fault)
            opening = self._opening
            while self._opening == opening:
                self._listen()
            return
        self._layout.write(self._slots[self._turn], gathered)
        self._turn = (self._turn + 1) % len(self._slots)
        self._unlearned += 1
        self._heartbeat.gathered()
        self._link.send(RolloutReady(version, time.monotonic() - began, waited))

    def _listen(self) -> None:
        self._heartbeat.waiting()
        answer = self._link.recv()
        self._heartbeat.acting()
        if isinstance(answer, Reopen):
            self._opening = answer.opening
        else:
            self._unlearned -= 1


def _hang_up(link: Link, error: UserError | str) -> None:
    with contextlib.suppress(OSError):  # the learner has ended
        link.send(error)


class _Running:
    """One actor process, from its start to its end.

    Each has its own pipe, slots and heartbeat, and no lock is shared, so nothing waits for an actor
    that was killed, at any moment.
    """

    def __init__(self, context: Any, start: ActorStart):
        self.number, task = start.spec.number, start.spec.task
        self.link, theirs = context.Pipe()
        layout = ByteLayout(start.gathered)
        self._slots = [layout.views(as_array(slot)) for slot in start.slots]
        self.heartbeat = Heartbeat(as_array(start.heartbeat))
        self._turn = 0
        self.process = context.Process(
            target=work, args=(start._replace(link=theirs),), name=f"clew-actor-{self.number}"
        )
        try:
            self.process.start()
        finally:
            theirs.close()
        timeout = start.spec.config.host.timeout
        # Environments with their own processes: the actor itself waits for them and ends them.
        patience = timeout + CLOSE_SECONDS if task.environment.vector else timeout
        self.detector = HangDetector(self.heartbeat, patience)

    def rollout(self, ready: RolloutReady) -> ActorRollout:
        """The rollout of a message; its arrays are views, which keep the shared memory alive."""
        gathered = self._slots[self._turn]
        self._turn = (self._turn + 1) % len(self._slots)
        return ActorRollout(ready.version, self.number, gathered, ready.seconds, ready.waited)

    def send(self, message: Ack | Reopen) -> None:
        """Sends a message, if the actor is alive."""
        # Before sending, because the actor may answer at once and then rightly wait again.
        self.detector.answering()
        with contextlib.suppress(*LOST):
            self.link.send(message)

    def heard(self) -> Iterator[Any]:
        """The messages that have come so far."""
        with contextlib.suppress(*LOST):
            while self.link.poll():
                yield self.link.recv()


class ProcessPool(ActorPool):
    """Actors in processes of this machine, each with an equal share of the environments.

    `params` has the shapes of what will be published.
    """

    def __init__(self, specs: list[ActorSpec], params: PyTree, log: Callable[[str], None]):
        config = specs[0].config
        self._specs, self._config = specs, config
        self._context = multiprocessing.get_context(start_method(PRELOADED))
        self._params, layout = params, ByteLayout(params)
        with self._started():
            self._block = shared_bytes(self._context, Versions.size(layout))
        self._versions = Versions(self._block, layout)
        self._gathered = gathered_template(config, specs[0].task, specs[0].num_envs)
        self._budget = FaultBudget(config.host.restarts, log)
        self._running: list[_Running] = []
        self._ready = Ready[_Running](
            config.asynchronous.max_lag, config.learner.gathering.consecutive
        )
        self._taken: list[_Running] = []
        self._version = -1
        self.dropped = 0
        # Without this, a process would wait for its children at exit if the pool is not closed.
        self._closing = util.Finalize(self, _end, (self._running, CLOSE_SECONDS), exitpriority=10)

    def publish(self, version: int, latest: ActorParams) -> None:
        self._versions.write(version, latest)
        self._version = version
        if not self._running:
            with self._started():
                self._running.extend(self._start(spec) for spec in self._specs)
        for running in self._taken:
            running.send(Ack())
        self._taken = []

    def take(self, count: int) -> list[ActorRollout]:
        while True:
            for running in self._ready.drop(self._version):
                self.dropped += 1
                running.send(Ack())
            if self._ready.enough(count):
                break
            links = [running.link for running in self._running]
            ends = [running.process.sentinel for running in self._running]
            connection.wait(links + ends, LOOK_SECONDS)
            for place in range(len(self._running)):
                self._attend(place)
        self._taken, rollouts = self._ready.take(count)
        return rollouts

    def close(self) -> None:
        self._closing()

    def _start(self, spec: ActorSpec) -> _Running:
        size = ByteLayout(self._gathered).size
        heartbeat = shared_bytes(self._context, HEARTBEAT_BYTES)
        ahead = self._config.asynchronous.ahead
        slots = [shared_bytes(self._context, size) for _ in range(ahead + 1)]
        require_descriptors(1)
        start = ActorStart(
            spec=spec,
            link=None,
            versions=self._block,
            heartbeat=heartbeat,
            slots=slots,
            params=self._params,
            gathered=self._gathered,
            opening=self._budget.used,
            cache=jax.config.values["jax_compilation_cache_dir"],
        )
        return _Running(self._context, start)

    def _attend(self, place: int) -> None:
        """Reads an actor's messages, and checks whether it is alive."""
        running = self._running[place]
        alive = running.process.is_alive()  # before reading, since no message follows its end
        failure = ""
        for message in running.heard():
            if isinstance(message, RolloutReady):
                self._ready.add(running, running.rollout(message))
                self._budget.stepped(running.number)
            elif isinstance(message, EnvironmentFault):
                text = f"actor {running.number}: {message}"
                self._budget.spend(message, "reopened", text, running.number)
                running.send(Reopen(self._budget.used))
            elif isinstance(message, UserError):
                raise message
            else:
                failure = f"raised:\n{message}"
        hung = running.detector.hung()
        if not failure and not alive:
            failure = f"ended (exit code {running.process.exitcode})"
        if failure or hung:
            self._replace(place, failure or f"hangs: {hung}")

    def _replace(self, place: int, failure: str) -> None:
        running = self._running[place]
        started = running.heartbeat.seen()[0] > 0
        _end([running], patience=0.0)
        name = self._config.env
        if not started:
            failure += (
                " while it started; a script that starts processes must put its work under "
                "`if __name__ == '__main__':`"
            )
        fault = EnvironmentFault(
            f"actor {running.number} {failure}", env=name, field="worker", cause=failure, lost=True
        )
        if not started:
            raise fault
        self._budget.spend(fault, "restarted", f"{name}: {fault}", running.number)
        with self._started():
            self._running[place] = self._start(self._specs[place])

    @contextlib.contextmanager
    def _started(self) -> Iterator[None]:
        """Reports what the system denied an actor: memory, processes or file descriptors."""
        try:
            yield
        except OSError as error:
            raise UserError(f"the actors cannot be started: {system_error(error)}") from error


def _end(running: list[_Running], patience: float) -> None:
    """Asks actors to end, and kills them after `patience` seconds."""
    deadline = time.monotonic() + patience
    for one in running:
        one.heartbeat.stop()
        one.link.close()
    for one in running:
        one.process.join(max(0.0, deadline - time.monotonic()))
    for one in running:
        if one.process.is_alive():
            one.process.kill()
    for one in running:
        one.process.join(CLOSE_SECONDS)
