"""Fake libraries, for tests of the comparison."""

from pathlib import Path
from typing import Any

import numpy as np

from comparison.compare import Plan
from comparison.families import Family
from comparison.processes import WorkerFailed
from serve import Sizes

FAMILY = Family("lstm", "LSTM", ("clew.lstm", "torch.lstm", "flax.lstm", "memorax.lstm"))
PLAN = Plan(lengths=(4, 8), widths=(3,), envs=(2,), actors=2, rounds=6, turn=0.0, bytes_limit=1000)
SIZES = Sizes(8, 2, 2, 3)

SECONDS = {"clew.lstm": 0.010, "torch.lstm": 0.005, "flax.lstm": 0.030, "memorax.lstm": 0.010}


class FakeLibrary:
    """Answers for every subject, from tables.

    Args:
        facts: additions to the answer to `prepare`, by subject; an exception is raised.
        outputs: the answer to "result", by subject; 1 by default.
    """

    def __init__(self, facts: dict[str, Any], outputs: dict[str, float]):
        self._facts, self._outputs = facts, outputs
        self.asked: list[tuple[str, str]] = []

    def of(self, subject: str) -> "FakeLibrary":
        """All subjects run in one place."""
        return self

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """An answer."""
        subject = what.get("subject", "")
        self.asked.append((do, subject))
        if do == "result":
            outputs = np.full(3, self._outputs.get(subject, 1.0))
            np.savez(Path(what["file"]), outputs=outputs, bias=np.ones(2))
            return {}
        if do == "prepare":
            told = self._facts.get(subject, {})
            if isinstance(told, WorkerFailed):
                raise told
            usual = {"seconds": SECONDS[subject], "parameters": 9, "weights": 8}
            return usual | {"planned_bytes": 500, "compile_seconds": 0.5} | told
        laws = {"reset": 0.0, "nan": True, "stream": 1e-7, "causal": 0.0}
        return {
            "time": {"seconds": SECONDS.get(subject, 0.0)},
            "memory": {"bytes": 2**20},
            "laws": laws,
            "forget": {},
            "libraries": {"clew": "1", "torch": "2"},
        }[do]
