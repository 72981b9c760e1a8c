"""Runs one library in its own process, controlled by lines of JSON. Needs only NumPy.

A worker's main program is `serve(LIBRARIES, SUBJECTS)`; a subject is a memory at one size.
Every request is a line on standard input, every answer a line on standard output:

    {"do": "libraries"}                                  {"torch": "2.13.0", ...}
    {"do": "prepare", "subject": ..., "mode": ...,       its facts, the seconds of one call, and
     "sizes": {...}, "arrays": "FILE.npz", "limit": ...}  "skipped" if it would need too much
    {"do": "time", "subject": ..., "calls": 10}          {"seconds": of one call}
    {"do": "memory", "subject": ...}                     {"bytes": that one call adds, or null}
    {"do": "result", "subject": ..., "file": ...}        {}, outputs and gradients are in the file
    {"do": "laws", "subject": ..., "sizes", "arrays"}    {"reset": ..., "nan": ..., ...}
    {"do": "forget"}                                     {}

An answer {"error": ...} describes the error; the worker continues.
"""

import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple, Protocol

import numpy as np

Arrays = dict[str, np.ndarray]


class Sizes(NamedTuple):
    """The sizes of a subject and of its inputs."""

    length: int
    """observations of a chunk"""
    envs: int
    """environments that learn side by side"""
    actors: int
    """environments that act side by side"""
    width: int
    """of observations, of the memory and of its output"""


class Subject(Protocol):
    """A memory with its weights; every call returns when its result is computed."""

    takes_starts: bool
    """whether it has an input for a start within a chunk"""

    def plan(self, mode: str) -> int | None:
        """Compiles what it can; bytes that a call of "learn" or "act" will hold, if known."""

    def facts(self) -> dict[str, Any]:
        """Counts of "parameters", and of "weights", those in matrices."""

    def learn(self) -> Any:
        """Forward and backward through the chunk."""

    def act(self) -> Any:
        """One observation for every actor, from the state that the last call left."""

    def result(self) -> Arrays:
        """The chunk's "outputs" [time, env, out], and gradients by the names of the arrays."""

    def read(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Outputs [time, env, out] of a chunk xs [time, env, in], from a fresh state."""

    def read_by_steps(self, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The same by acting, one observation after another."""


Build = Callable[[Sizes, Arrays], Subject]


def serve(libraries: tuple[str, ...], subjects: dict[str, Build]) -> None:
    """Answers until standard input ends. Whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(libraries, subjects)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(worker, question.pop("do"))(**question)
        except Exception as error:  # from another library: reported, and the next one is measured
            first = (str(error).splitlines() or [""])[0]
            answer = {"error": f"{type(error).__name__}: {first}"[:500]}
        print(json.dumps(answer), file=answers, flush=True)


class Worker:
    """The answers."""

    def __init__(self, libraries: tuple[str, ...], subjects: dict[str, Build]):
        self._names = libraries
        self._subjects = subjects
        self._prepared: dict[str, tuple[Subject, Callable[[], Any]]] = {}

    def libraries(self) -> dict[str, str]:
        """Versions."""
        return {name: metadata.version(name) for name in self._names}

    def prepare(
        self, subject: str, mode: str, sizes: list[int], arrays: str, limit: int
    ) -> dict[str, Any]:
        """Builds a subject and calls it twice, unless it would need more bytes than `limit`."""
        built = self._subjects[subject](Sizes(*sizes), dict(np.load(arrays)))
        begin = time.perf_counter()
        planned = built.plan(mode)
        facts = built.facts() | {
            "planned_bytes": planned,
            "compile_seconds": time.perf_counter() - begin,
            "takes_starts": built.takes_starts,
        }
        if planned is not None and planned > limit:
            return facts | {"skipped": f"would need {planned / 2**30:.1f} GiB"}
        call = built.learn if mode == "learn" else built.act
        self._prepared[subject] = built, call
        call()
        return facts | self.time(subject, 1)

    def time(self, subject: str, calls: int) -> dict[str, Any]:
        """The mean over some calls."""
        _, call = self._prepared[subject]
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return {"seconds": (time.perf_counter() - begin) / calls}

    def memory(self, subject: str) -> dict[str, Any]:
        """Peak memory that one call adds to the process's resident size."""
        return {"bytes": resident_growth(self._prepared[subject][1])}

    def result(self, subject: str, file: str) -> dict[str, Any]:
        """Outputs and gradients."""
        np.savez(file, **self._prepared[subject][0].result())
        return {}

    def laws(self, subject: str, sizes: list[int], arrays: str) -> dict[str, Any]:
        """A subject's deviations from what every memory must satisfy; see `broken`."""
        given = dict(np.load(arrays))
        return broken(self._subjects[subject](Sizes(*sizes), given), given["inputs"])

    def forget(self) -> dict[str, Any]:
        """Drops everything that was prepared."""
        self._prepared.clear()
        gc.collect()
        return {}


def resident_growth(call: Callable[[], Any]) -> int | None:
    """Bytes by which a call raises this process's resident memory; None where that is unknown.

    Free memory is returned to the system first, so that the call must ask for all it needs,
    whichever library it belongs to.
    """
    try:
        before = resident("VmRSS", trimmed=True)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the peak resident size
        call()
        return max(0, resident("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def resident(field: str, trimmed: bool = False) -> int:
    """Bytes of this process in memory, now (VmRSS) or at most (VmHWM).

    With `trimmed` free memory is returned to the system first.
    """
    if trimmed:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as file:
        found = next(line for line in file if line.startswith(field))
    return int(found.split()[1]) * 1024


def broken(subject: Subject, xs: np.ndarray) -> dict[str, Any]:
    """Largest deviations, relative to the largest output, from properties of every memory.

    reset     outputs from a start on equal a fresh run; None if it has no input for starts
    nan       whether a NaN before a start stays out of what follows it
    stream    acting one by one equals reading the chunk
    causal    outputs do not depend on later observations
    """
    time, envs, _ = xs.shape
    middle = time // 2
    starts = np.zeros((time, envs), bool)
    starts[0] = True
    found: dict[str, Any] = {"reset": None, "nan": None}
    if subject.takes_starts:
        starts[middle] = True
        whole = subject.read(xs, starts)
        found["reset"] = deviation(whole[middle:], subject.read(xs[middle:], starts[middle:]))
        spoiled = xs.copy()
        spoiled[middle - 1, 0] = np.nan
        found["nan"] = keeps_out(subject, spoiled, starts, middle)
    whole = subject.read(xs, starts)
    found["stream"] = deviation(subject.read_by_steps(xs, starts), whole)
    other = xs.copy()
    other[middle + 1 :] += 1.0
    found["causal"] = deviation(subject.read(other, starts)[: middle + 1], whole[: middle + 1])
    return found


def keeps_out(subject: Subject, spoiled: np.ndarray, starts: np.ndarray, begin: int) -> bool:
    """Whether all is finite from a start on; some libraries refuse to return anything else."""
    try:
        return bool(np.isfinite(subject.read(spoiled, starts)[begin:]).all())
    except ValueError:
        return False


def deviation(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, as a fraction of the largest number of b."""
    return float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30))
