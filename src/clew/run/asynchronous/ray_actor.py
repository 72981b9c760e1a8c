"""An actor in a process of a Ray cluster; it imports nothing heavy before it acts."""

import os
import pickle
import platform
import threading
import time
import traceback
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.errors import UserError
from clew.run.asynchronous.heartbeat import HEARTBEAT_BYTES, HangDetector, Heartbeat
from clew.run.cluster import import_ray

if TYPE_CHECKING:
    from clew.run.asynchronous.actor import Actor, ActorParams, Gathered

ASIDE = "aside"
"""The group of an actor's threads that answer while another thread acts."""
aside = import_ray().method(concurrency_group=ASIDE)
"""Decorator for methods that run on these threads."""
PACKAGES = ("clew", "jax", "jaxlib", "equinox", "numpy", "gymnasium")
"""Packages that learner and actors must have in the same version."""


def installed() -> dict[str, str]:
    """Versions of those packages in this process; empty for a missing one."""
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = ""
    return versions


class Made(NamedTuple):
    """A rollout in the form that is sent to the learner."""

    version: int
    gathered: "Gathered"
    seconds: float
    waited: float


class RayActor:
    """One actor of a run, in a process of its own.

    `rollout` and `close` always run on the same thread.

    Args:
        spec: a pickled `ActorSpec`; it is unpickled only after the versions were compared.
        patience: seconds without a heartbeat after which it counts as hung.
    """

    def __init__(self, spec: bytes, patience: float):
        self._spec = spec
        self._heartbeat = Heartbeat(np.zeros(HEARTBEAT_BYTES, np.uint8))
        self._heartbeat.begin()
        self._heartbeat.waiting()
        self._detector = HangDetector(self._heartbeat, patience)
        self._newest: tuple[int, ActorParams | None] = (-1, None)
        self._lock = threading.Lock()
        self._actor: Actor | None = None
        self._opening = 0
        self._ended = time.monotonic()

    @aside
    def where(self) -> tuple[str, str, dict[str, str]]:
        """The node's id, a description of this process, and its package versions."""
        ray = import_ray()
        node = ray.get_runtime_context().get_node_id()
        address = ray.util.get_node_ip_address()
        words = f"process {os.getpid()} on node {address} {platform.node()} {node[:8]}"
        return node, words, installed()

    @aside
    def look(self) -> str:
        """What hangs, as the end of a sentence; empty if nothing hangs."""
        return self._detector.hung()

    @aside
    def receive(self, version: int, latest: "ActorParams") -> None:
        """Keeps new parameters for the next rollout."""
        with self._lock:
            if version > self._newest[0]:
                self._newest = version, latest

    @aside
    def stop(self) -> None:
        """Ends the rollout in progress; later ones do not begin."""
        self._heartbeat.stop()

    def close(self) -> None:
        """Closes the environments."""
        if self._actor is not None:
            self._actor.close()

    def rollout(
        self, version: int, latest: "ActorParams", opening: int
    ) -> Made | UserError | str | None:
        """Gathers a rollout with the given parameters, or with newer ones if they have come since.

        Returns:
            The rollout; or the failure, as an error or a traceback; or None if the rollout was
            requested before a fault that the learner has not answered yet, or after the end.
        """
        self.receive(version, latest)
        if opening < self._opening:
            return None
        began, before = time.monotonic(), self._ended
        try:
            self._heartbeat.acting()
            version, gathered = self._gather(opening)
        except SystemExit:
            return None
        except EnvironmentFault as fault:
            self._opening = opening + 1
            return fault
        except UserError as error:
            return error
        except Exception:
            return traceback.format_exc()
        self._ended = time.monotonic()
        return Made(version, gathered, self._ended - before, began - before)

    def _gather(self, opening: int) -> tuple[int, "Gathered"]:
        import jax  # start: so that a node without it can still report its versions

        actor = self._actor = self._actor or self._begin()
        with self._lock:
            version, latest = self._newest
        assert latest is not None
        try:
            gathered: Gathered = jax.tree.map(np.asarray, actor.rollout(version, latest, opening))
            self._heartbeat.gathered()
        finally:
            self._heartbeat.waiting()
        return version, gathered

    def _begin(self) -> "Actor":
        from clew.run.asynchronous.actor import Actor, use_one_thread  # start: as JAX
        from clew.run.machine import use_compilation_cache  # start: as JAX

        use_compilation_cache()
        use_one_thread()
        return Actor(pickle.loads(self._spec), self._heartbeat)
