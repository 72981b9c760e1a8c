"""The code of a process that does jobs: a local worker, or a task of a Ray cluster.

Imports nothing heavy, so that a process starts quickly: the job's function imports JAX.
"""

import asyncio
import json
import os
import platform
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from clew.bridges.gymnasium.processes import leave_stopping_to_parent
from clew.errors import UserError
from clew.names import resolve

ACTIVE = "CLEW_STUDY_WORKER"
"""Set in every worker: a script that runs a study when imported would run it there again."""
POLL_SECONDS = 1.0
"""Minimum time between two readings of the progress of tasks on a cluster."""


def main(work: str) -> None:
    """Runs jobs, one JSON object per line, until standard input ends.

    Events are lines of JSON too, {"kind": "ready" | "progress" | "rows" | "failed", ...}, on the
    original standard output; everything else that is printed goes to standard error, the worker's
    log. `work` is as `clew.lab.grid.workers.WORK`.
    """
    leave_stopping_to_parent()
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    try:
        run_job = resolve(work)
    except UserError as error:
        sys.exit(str(error))
    _send(events, json.dumps({"kind": "ready"}))

    def report(share: float) -> None:
        _send(events, json.dumps({"kind": "progress", "share": share}))

    while True:
        _send(events, answer(run_job, jobs.get(), report))


def answer(
    run_job: Callable[..., Any], job: dict[str, Any], report: Callable[[float], None]
) -> str:
    """The event of a job, as JSON: its rows, or the error that it raised.

    `run_job` reports the fraction of the training that is complete, first when it begins to train.
    """
    begun = False

    def progress(share: float) -> None:
        nonlocal begun
        begun = True
        report(share)

    try:
        return json.dumps({"kind": "rows", "rows": run_job(job, progress)}, allow_nan=False)
    except UserError as error:
        text = str(error).strip() or type(error).__name__
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}".strip()
    return json.dumps({"kind": "failed", "error": text, "begun": begun})


class ProgressActor:
    """An actor to which tasks report their progress, for the study to read."""

    def __init__(self) -> None:
        self._reports: dict[int, tuple[str, float]] = {}

    async def report(self, key: int, worker: str, share: float) -> None:
        """Stores which worker has a task, and the fraction of its training that is complete."""
        self._reports[key] = (worker, share)

    async def read(self) -> dict[int, tuple[str, float]]:
        """The reports since the last reading; takes a moment."""
        await asyncio.sleep(POLL_SECONDS)
        reports, self._reports = self._reports, {}
        return reports


def run_task(work: str, job: str, key: int, progress: Any) -> str:
    """One job as a task, from JSON to JSON: an event like those of a local worker.

    Args:
        work: as in `main`.
        job: of `clew.lab.grid.jobs.make_job`, as JSON.
        key: of the task in reports.
        progress: handle of the `ProgressActor`.

    Raises:
        UserError: if `work` cannot be resolved; an error of the work itself is an event.
    """
    worker = f"process {os.getpid()} on {platform.node()}"

    def report(share: float) -> None:
        progress.report.remote(key, worker, share)

    report(0.0)
    run_job = resolve(work)
    return answer(run_job, json.loads(job), report)


def _read(jobs: "queue.Queue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(0)  # the parent has ended; nobody needs the job any more


def _send(events: TextIO, event: str) -> None:
    try:
        events.write(event + "\n")
        events.flush()
    except BrokenPipeError:
        os._exit(0)
