"""Draws what every memory was seen to remember, and writes it for `clew advise`.

    python -m benchmarks.which_memory
    python -m benchmarks.which_memory mine.png --add mine

From the rows that are there; nothing is trained here. A line of the picture is a memory at its
defaults, a column one thing that had to be remembered. 0 is what needs no memory and 1 all right,
so that columns of different scores can stand side by side. A memory of your own is a line where its
rows are among those of `results/`; docs/add-a-memory.md has the commands. Without a path the
repository's own picture is drawn, and src/clew/lab/scores.csv and docs/which-memory.md are written.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from benchmarks.heatmap import draw_heatmap
from benchmarks.options import described
from benchmarks.remembered import Measure, Scores, measures

from clew.errors import unknown_name
from clew.lab import advice
from clew.memory import MEMORIES
from clew.stats import bootstrap_interval, welch_test

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "which-memory.png"
PAGE = ROOT / "docs" / "which-memory.md"
SCORES = ROOT / "src" / "clew" / "lab" / "scores.csv"


def tried(found: Sequence[Measure], added: Sequence[str]) -> dict[str, list[float]]:
    """A line for each memory that somebody tried, and for models beside the library's.

    Raises:
        UserError: for an added one without rows.
    """
    there = {name for measure in found for name in measure.scores}
    for name in added:
        if name not in there:
            raise unknown_name("model with rows in results/", name, there)
    names = [name for name in MEMORIES if name in there] + [*added]
    return {name: [measure.share(name) for measure in found] for name in names}


def draw(found: Sequence[Measure], added: Sequence[str], path: Path) -> None:
    """Draws the picture of those that have a column."""
    columns = [measure for measure in found if measure.title]
    draw_heatmap(
        tried(columns, added),
        [column.title for column in columns],
        "what has to be remembered",
        path,
        best_first=False,
        label="0: what needs no memory, 1: all right",
    )


def table(found: Sequence[Measure]) -> str:
    """The scores of the library's memories as CSV, those of a measure from the highest down."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(advice.Score._fields)
    for measure in found:
        for score in ranked(measure):
            writer.writerow([f"{v:.4f}" if isinstance(v, float) else v for v in score])
    return file.getvalue()


def ranked(measure: Measure) -> list[advice.Score]:
    """Means with intervals, and whether Welch's test tells each from the highest."""
    scores = {m: values for m, values in measure.scores.items() if m in MEMORIES}
    first, *_ = names = sorted(scores, key=lambda m: (-sum(scores[m]) / len(scores[m]), m))
    return [
        advice.Score(
            measure.need,
            measure.measured,
            measure.rows,
            name,
            len(scores[name]),
            *bootstrap_interval(scores[name]),
            "yes" if are_told_apart(scores, first, name) else "no",
        )
        for name in names
    ]


def are_told_apart(scores: Scores, first: str, other: str) -> bool:
    """Whether Welch's test does at a level of 0.05; it needs two seeds of both."""
    enough = min(len(scores[first]), len(scores[other])) > 1
    return enough and welch_test(scores[first], scores[other]).p < 0.05


def main() -> None:
    """Draws the picture, and without a path writes the scores and the page too."""
    parser = described(__doc__)
    parser.add_argument("path", type=Path, nargs="?", help="of the picture")
    parser.add_argument("--add", nargs="+", default=[], help="models, by their names in the rows")
    given = parser.parse_args()
    found = measures()
    draw(found, given.add, given.path or PICTURE)
    if not given.path:
        SCORES.write_text(table(found), encoding="utf-8")
        PAGE.write_text(advice.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
