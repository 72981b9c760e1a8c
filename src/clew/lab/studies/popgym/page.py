"""The report of the study on POPGym's tasks: the general one, with its command."""

from clew.lab.studies.report.edition import Edition, Page

PREFIX = "popgym/"


def command(edition: Edition) -> str:
    """What makes such a folder."""
    difficulty, learner = edition.name.removeprefix(PREFIX).split("-")
    options = f"--difficulty {difficulty} --learner {learner}"
    return f"clew study popgym {options} --run-dir {edition.folder}"


def page_of(name: str) -> Page | None:
    """The page of a grid of the study by its name; None for others."""
    return Page(command) if name.startswith(PREFIX) else None
