"""Runs studies: grids of small trainings, resumed where they stopped, one row a training."""

from clew.studies.engine.progress import QuietStudy, Standing, StudyLines, StudyProgress
from clew.studies.engine.results import read_results
from clew.studies.engine.runner import (
    Failure,
    StudyInterrupted,
    StudyResult,
    check_study,
    run_study,
)
from clew.studies.engine.study import Cell, Evaluation, Expected, Pack, Setting, Study
from clew.studies.engine.workers import Event, LocalWorkers, Workers

__all__ = [
    "Cell",
    "Evaluation",
    "Event",
    "Expected",
    "Failure",
    "LocalWorkers",
    "Pack",
    "QuietStudy",
    "Setting",
    "Standing",
    "Study",
    "StudyInterrupted",
    "StudyLines",
    "StudyProgress",
    "StudyResult",
    "Workers",
    "check_study",
    "read_results",
    "run_study",
]
