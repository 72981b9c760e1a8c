"""What parts, models and scores are called in a report."""

import re

from clew.studies.plots import LABELS
from clew.studies.report import thesis
from clew.studies.report.edition import Edition


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


def typeset(text: str) -> str:
    """Text with real minus signs before its numbers, and none before 0.00; hyphens within words
    and dates stay."""
    plain = re.sub(r"(?<![\w)-])-(?=0\.0+(?!\d))", "", text)
    return re.sub(r"(?<![\w)-])-(?=\d)", "\u2212", plain)


def counted(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: list[str]) -> str:
    """Words as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def duration(seconds: float) -> str:
    """Seconds in the unit that one would say them in."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} seconds"
