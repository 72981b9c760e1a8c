"""The report of the study on POPGym's tasks: the general form, with command and known returns."""

import itertools

from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.lab.studies.popgym.floors import best_returns
from clew.lab.studies.popgym.grid import LEARNERS, study
from clew.lab.studies.report.data import Page, Publication, StudyData, command_of


def page_of(name: str) -> Page | None:
    """The page of a grid of the study by its name; None for others."""
    known = {f"popgym/{d}-{k}": (d, k) for d, k in itertools.product(DIFFICULTIES, LEARNERS)}
    if name not in known:
        return None
    difficulty, learner = known[name]
    whole = study(difficulty, learner)

    def command(data: StudyData) -> str:
        words = f"popgym --difficulty {difficulty} --learner {learner}"
        return command_of(data, words, whole)

    known = best_returns(difficulty)
    best = {name: known[setting.env] for name, setting in whole.settings.items()}
    return Page(command, Publication(settings=whole.settings, best=best))
