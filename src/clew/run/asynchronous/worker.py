"""The process of an actor."""

import os
import signal
import threading
import time
import traceback
from multiprocessing import connection, parent_process
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.errors import UserError
from clew.run.asynchronous.acting import Actor, ActorParams, ActorSpec, Gathered
from clew.run.asynchronous.heartbeat import Heartbeat
from clew.run.asynchronous.shared import Layout, Versions, as_array

Link = Any
"""A `multiprocessing.connection.Connection`, of one type on Unix and another on Windows."""


class RolloutReady(NamedTuple):
    """An actor's message: a rollout is whole in the slot whose turn it is."""

    version: int
    seconds: float
    waited: float


class Ack(NamedTuple):
    """The learner's message: so many rollouts of the actor are learned from, or dropped."""

    rollouts: int


class Reopen(NamedTuple):
    """The learner's message after a fault: open the environments anew."""

    opening: int


class Memory(NamedTuple):
    """What an actor shares with the learner."""

    published: Any
    """Bytes of `Versions`."""
    signs: Any
    """Bytes of `Heartbeat`."""
    slots: list[Any]
    """Bytes of a rollout each."""


class Start(NamedTuple):
    """Everything that an actor begins with."""

    share: ActorSpec
    link: Link
    memory: Memory
    published: PyTree
    """Shapes of what is published."""
    gathered: PyTree
    """Shapes of a rollout."""
    opening: int
    cache: str | None
    """Folder of compiled programs."""


def work(start: Start) -> None:
    """Acts until the learner hangs up; what goes wrong is told, and not printed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner decides what Ctrl-C means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if start.cache:
            jax.config.update("jax_compilation_cache_dir", start.cache)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
            jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        use_one_core()
        _Worker(start).serve()
    except (EOFError, ConnectionError):
        pass
    except UserError as error:
        _hang_up(start.link, error)
    except Exception:
        _hang_up(start.link, traceback.format_exc())


class _Worker:
    def __init__(self, start: Start):
        self._link, self._opening = start.link, start.opening
        self._signs = Heartbeat(as_array(start.memory.signs))
        self._signs.begin()
        self._versions = Versions(start.memory.published, Layout(start.published))
        self._layout = Layout(start.gathered)
        self._slots = [as_array(slot) for slot in start.memory.slots]
        self._ahead = len(self._slots) - 1
        self._turn, self._unlearned = 0, 0
        self._actor = Actor(start.share, self._signs)

    def serve(self) -> None:
        """Gathers rollouts for ever."""
        try:
            while True:
                began = time.monotonic()
                self._wait()
                waited = time.monotonic() - began
                version, published = self._versions.read()
                self._act(version, published, began, waited)
        finally:
            self._actor.close()

    def _act(self, version: int, published: ActorParams, began: float, waited: float) -> None:
        try:
            gathered = self._actor.rollout(version, published, self._opening)
        except EnvironmentFault as fault:
            self._link.send(fault)
            opening = self._opening
            while self._opening == opening:
                self._listen()
            return
        self._write(gathered)
        self._signs.gathered()
        self._link.send(RolloutReady(version, time.monotonic() - began, waited))

    def _write(self, gathered: Gathered) -> None:
        self._layout.write(self._slots[self._turn], gathered)
        self._turn = (self._turn + 1) % len(self._slots)
        self._unlearned += 1

    def _wait(self) -> None:
        """Until this actor is not too far ahead of the learner."""
        while self._unlearned > self._ahead or self._link.poll():
            self._listen()

    def _listen(self) -> None:
        self._signs.waiting()
        answer = self._link.recv()
        self._signs.acting()
        if isinstance(answer, Reopen):
            self._opening = answer.opening
        else:
            self._unlearned -= answer.rollouts


def _hang_up(link: Link, error: UserError | str) -> None:
    try:
        link.send(error)
    except OSError:
        pass  # nobody listens any more


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def use_one_core() -> None:
    """Makes JAX compute on one thread, so that actors do not crowd each other out.

    It takes as many threads as the process has cores when it first computes.
    """
    jax.config.update("jax_platforms", "cpu")
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores is not None:
        os.sched_setaffinity(0, {min(cores)})
    jax.block_until_ready(jax.device_put(np.zeros(1, np.float32)))
    if cores is not None:
        os.sched_setaffinity(0, cores)
