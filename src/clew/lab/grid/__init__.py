"""Runs studies: grids of small trainings, resumed where they stopped, one row per training.

The names below are imported on first use, so that a worker starts quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clew.lab.grid.packs import Pack, make_packs
    from clew.lab.grid.progress import QuietStudy, Standing, StudyLines, StudyProgress
    from clew.lab.grid.ray_workers import RayWorkers
    from clew.lab.grid.results import read_results
    from clew.lab.grid.runner import Failure, StudyInterrupted, StudyResult, check_study, run_study
    from clew.lab.grid.study import Cell, Evaluation, Expected, Setting, Study
    from clew.lab.grid.workers import Event, LocalWorkers, Workers

_HOMES = {
    "progress": ("QuietStudy", "Standing", "StudyLines", "StudyProgress"),
    "ray_workers": ("RayWorkers",),
    "results": ("read_results",),
    "runner": ("Failure", "StudyInterrupted", "StudyResult", "check_study", "run_study"),
    "study": ("Cell", "Evaluation", "Expected", "Setting", "Study"),
    "packs": ("Pack", "make_packs"),
    "workers": ("Event", "LocalWorkers", "Workers"),
}

__all__ = [
    "Cell",
    "Evaluation",
    "Event",
    "Expected",
    "Failure",
    "LocalWorkers",
    "Pack",
    "QuietStudy",
    "RayWorkers",
    "Setting",
    "Standing",
    "Study",
    "StudyInterrupted",
    "StudyLines",
    "StudyProgress",
    "StudyResult",
    "Workers",
    "check_study",
    "make_packs",
    "read_results",
    "run_study",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"clew.lab.grid.{module}"), name)
    raise AttributeError(f"module 'clew.lab.grid' has no attribute {name!r}")
