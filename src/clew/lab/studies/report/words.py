"""What parts, models and scores are called in a report."""

from clew.lab.studies.report import thesis
from clew.lab.studies.report.edition import Edition
from clew.report.curves import LABELS


def title_of(edition: Edition, part: str) -> str:
    """The name of a part."""
    if edition.thesis and part in thesis.PARTS:
        return thesis.PARTS[part].title
    return "All settings" if part == "all" else part


def axis_of(edition: Edition, part: str) -> str:
    """What the settings of a part differ in."""
    return thesis.PARTS[part].axis if edition.thesis and part in thesis.PARTS else "setting"


def score_label(edition: Edition) -> str:
    """What a score is, for an axis."""
    score = str(edition.rows[0]["score"])
    return LABELS.get(score, score) if score != "return" else score


def model_title(edition: Edition, model: str) -> str:
    """The thesis's name of a model where it is another one than ours, else nothing."""
    title = thesis.TITLES.get(model, "") if edition.thesis else ""
    return "" if title.lower() == model.lower() else title
