"""What runs in a Ray cluster's own processes; imports nothing heavy, since some do no training."""

import asyncio
import json
import os
import platform
from typing import Any

from clew.lab.grid.worker import failure
from clew.names import resolve

READING_SECONDS = 1.0
"""How long a reading of the notebook takes, so that nobody reads it all the time."""


class Notebook:
    """An actor in which tasks write how far they are, for the study to read."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[str, float]] = {}

    async def tell(self, key: int, worker: str, share: float) -> None:
        """Notes who is at a task, and the share of the training that is behind."""
        self._told[key] = (worker, share)

    async def read(self) -> dict[int, tuple[str, float]]:
        """What was told since the last reading, a moment from now."""
        await asyncio.sleep(READING_SECONDS)
        told, self._told = self._told, {}
        return told


def work_off(work: str, job: str, key: int, notebook: Any) -> str:
    """One job as a task, from JSON to JSON: an event like those of a local worker.

    Args:
        work: "package.module:function" that makes rows of a job.
        job: of `clew.lab.grid.work.make_job`, as JSON.
        key: under which the notebook knows it.
        notebook: handle of the `Notebook`.

    Raises:
        UserError: if `work` leads nowhere; an error of the work itself is an event.
    """
    worker = f"process {os.getpid()} on {platform.node()}"

    def tell(share: float) -> None:
        notebook.tell.remote(key, worker, share)

    tell(0.0)
    run_job = resolve(work)
    try:
        return json.dumps({"event": "rows", "rows": run_job(json.loads(job), tell)})
    except Exception as error:
        return json.dumps(failure(error))
