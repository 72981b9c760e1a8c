"""The inside of a local worker process: jobs come in on one pipe, events go out on another."""

import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any, TextIO

ACTIVE = "CLEW_STUDY_WORKER"
"""Set in every worker: a script that runs a study when imported would run it there again."""


def main(work: str) -> None:
    """Works off jobs, one JSON object a line, until standard input ends.

    Events are lines of JSON too, {"event": "ready" | "progress" | "rows" | "failed", ...}, on what
    was standard output; whatever else is printed goes to standard error, the worker's log.

    Args:
        work: "package.module:function" that makes rows of a job.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    from clew.names import resolve

    run_job = resolve(work)
    _tell(events, event="ready")
    while True:
        job = jobs.get()
        try:
            rows = run_job(job, lambda share: _tell(events, event="progress", share=share))
            _tell(events, event="rows", rows=rows)
        except Exception as error:
            _tell(events, **failure(error))


def failure(error: Exception) -> dict[str, Any]:
    """The event of a job that raised an error; where it did is printed, unless it is a mistake."""
    from clew.errors import UserError
    from clew.run.stop import TrainingDiverged

    if not isinstance(error, UserError):
        traceback.print_exc()
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return {
        "event": "failed",
        "error": text.strip() or type(error).__name__,
        "diverged": isinstance(error, TrainingDiverged),
    }


def _read(jobs: "queue.Queue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(0)  # the parent has ended, in whatever way; nobody wants what is being worked at


def _tell(events: TextIO, **event: Any) -> None:
    try:
        events.write(json.dumps(event) + "\n")
        events.flush()
    except BrokenPipeError:
        os._exit(0)
