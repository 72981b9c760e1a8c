"""One actor on a Ray cluster, as the learner sees it."""

import contextlib
import pickle
import re
import time
from collections import deque
from typing import Any, NamedTuple

from clew.bridges.gymnasium.vector import CLOSE_SECONDS
from clew.errors import UserError
from clew.run import cluster
from clew.run.asynchronous.acting import ActorSpec
from clew.run.asynchronous.ray_actor import ASIDE, Made, RayActor, installed

LOST_NODE = re.compile(r"node has died. Node Id: (\w+)")
ANSWER_SECONDS = 30.0
"""How long an actor may take at least to answer, whatever its environments may: others compute on
its node too, and Ray gives its processes a low priority."""
LOOK_SHARE, LOOK_LEAST = 0.1, 0.2
"""How often it is asked for signs of life: at this share of its patience, and seconds at least."""


class Gone(NamedTuple):
    """An actor that is to be replaced."""

    why: str
    node: str = ""
    """The node that was lost with it, "" if it was not that."""
    fatal: bool = False
    """Whether another one would fail as well."""


class RunningActor:
    """An actor process of the cluster, from its start to its end.

    Ray tries nothing again, neither tasks nor actors: what becomes of them is for the pool to
    decide.

    Args:
        ray: the package, connected.
        share: of the run.
    """

    def __init__(self, ray: Any, share: ActorSpec):
        self._ray, self.number = ray, share.number
        host = share.config.host
        # Environments with processes of their own are waited for, and ended, by the actor itself.
        self._patience = host.timeout + CLOSE_SECONDS * share.side.task.vector
        options = {
            "num_cpus": 1,
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {ASIDE: 2},
            "scheduling_strategy": "SPREAD",
            "runtime_env": {"env_vars": cluster.environment(JAX_PLATFORMS="cpu")},
        }
        self._handle = ray.remote(**options)(RayActor).remote(pickle.dumps(share), self._patience)
        self._where = self._handle.where.remote()
        self._look: Any = None
        self._asked = self.since = time.monotonic()
        self._unreachable: float | None = None
        self._tasks: deque[Any] = deque()
        self.held = 0
        """Rollouts that have come and are not learned from."""
        self.node, self.words = "", f"actor {self.number}"

    @property
    def started(self) -> bool:
        """Whether it has a process, which answered."""
        return bool(self.node)

    def waits_for(self) -> list[Any]:
        """References that something is to be heard of when they are ready."""
        if not self.started:
            return [self._where]
        return [x for x in (*list(self._tasks)[:1], self._look) if x is not None]

    def tell(self, version: int, published: Any) -> None:
        """Has it begin its next rollouts with these parameters, a reference."""
        if self._tasks:
            self._handle.tell.remote(version, published)

    def fill(self, ahead: int, version: int, published: Any, opening: int) -> None:
        """Asks for so many rollouts more than are being learned from, as may be."""
        able = self.started and self._unreachable is None
        while able and len(self._tasks) + self.held <= ahead:
            self._tasks.append(self._handle.rollout.remote(version, published, opening))

    def forget(self) -> None:
        """What it was asked for will not come."""
        self._tasks.clear()

    def heard(self, reference: Any) -> Made | UserError | str | Gone | None:
        """What a reference that is ready says.

        Returns:
            A rollout or what went wrong, as `RayActor.rollout` has it, or that the actor is gone.
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
            # Its node may have vanished, which Ray notices only after a while: ask until it has.
            self._unreachable, self._look = self._unreachable or time.monotonic(), None
            self.forget()
            return None

    def look(self) -> Gone | None:
        """Asks for signs of life now and then, and says if it owes an answer for too long."""
        now = time.monotonic()
        if not self.started:
            return None
        seconds = max(self._patience, ANSWER_SECONDS)
        if now - (self._unreachable or self._asked) > seconds and self._owes:
            return Gone(f"hangs: it did not answer within {seconds:g} s")
        share = 0.0 if self._unreachable else LOOK_SHARE
        if self._look is None and now - self._asked > max(LOOK_LEAST, share * self._patience):
            self._look, self._asked = self._handle.look.remote(), now
        return None

    def stop(self) -> list[Any]:
        """Asks it to end; references that are ready when it has closed its environments."""
        if not self.started or self._unreachable:
            return []
        self._handle.stop.remote()
        return [self._handle.close.remote()]

    def kill(self) -> None:
        """Ends its process, whatever it is at."""
        self._unreachable = time.monotonic()
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._handle)

    @property
    def _owes(self) -> bool:
        return self._look is not None or self._unreachable is not None

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

    def _died(self, told: str) -> Gone:
        if "creation task" in told and not self.started:
            return Gone(f"could not start: {_last_line(told)}", fatal=True)
        if lost := LOST_NODE.search(told):
            return Gone("was lost with its node", node=lost[1])
        _, _, why = told.partition("The actor is dead because ")
        return Gone(f"ended ({(why or told).partition('. ')[0].strip().rstrip('.')})")


def _last_line(error: Any) -> str:
    return str(error).strip().splitlines()[-1].strip()
