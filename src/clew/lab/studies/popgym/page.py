"""The report of the study on POPGym's tasks: the general one, with its command and floors."""

from clew.lab.studies.popgym.grid import study
from clew.lab.studies.report.edition import Edition, Page, Publication

PREFIX = "popgym/"


def page_of(name: str) -> Page | None:
    """The page of a grid of the study by its name; None for others."""
    if not name.startswith(PREFIX):
        return None
    difficulty, learner = name.removeprefix(PREFIX).split("-")
    options = f"--difficulty {difficulty} --learner {learner}"

    def command(edition: Edition) -> str:
        return f"clew study popgym {options} --run-dir {edition.folder}"

    return Page(command, Publication(settings=study(difficulty, learner).settings))
