"""Draws what every memory was seen to remember, and writes the scores for `clew advise`.

    python -m benchmarks.which_memory
    python -m benchmarks.which_memory mine.png --add mine

It uses existing rows; nothing is trained here. A row of the picture is a memory at its defaults, a
column one thing that had to be remembered. 0 is a guess or random actions and 1 a perfect score, so
that columns of different scores are comparable. A memory of your own is drawn if its rows are among
those of `results/`; docs/add-a-memory.md has the commands. Without a path the repository's own
picture is drawn, and src/clew/lab/scores.csv and docs/which-memory.md are written.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.heatmap import draw_heatmap
from benchmarks.options import described
from benchmarks.remembered import Measure, Scores, measures

from clew.errors import unknown_name
from clew.lab import advice
from clew.memory import MEMORIES
from clew.stats import bootstrap_interval, holm, welch_test

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "which-memory.png"
PAGE = ROOT / "docs" / "which-memory.md"
SCORES = ROOT / "src" / "clew" / "lab" / "scores.csv"


def tried(found: Sequence[Measure], added: Sequence[str]) -> dict[str, list[float]]:
    """A row for each memory with scores, and for models beside the library's.

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
    """Draws the picture of the measures that have a column."""
    columns = [measure for measure in found if measure.title]
    draw_heatmap(
        tried(columns, added),
        [column.title for column in columns],
        "what has to be remembered",
        path,
        best_first=False,
        label="normalised score (0: guessing or random actions, 1: perfect)",
    )


def table(found: Sequence[Measure]) -> str:
    """The scores of the library's memories as CSV, each measure in decreasing order."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(advice.Score._fields)
    for measure in found:
        for score in ranked(measure):
            writer.writerow([f"{v:.4f}" if isinstance(v, float) else v for v in score])
    return file.getvalue()


def ranked(measure: Measure) -> list[advice.Score]:
    """Means with intervals, and which of them are told apart from the highest and from none."""
    scores = {m: values for m, values in measure.scores.items() if m in MEMORIES}
    names = sorted(scores, key=lambda m: (-np.mean(scores[m]), m))
    from_highest, from_none = (told_apart(scores, other) for other in (names[0], "none"))
    return [
        advice.Score(
            measure.need,
            measure.measured,
            measure.rows,
            name,
            len(scores[name]),
            *bootstrap_interval(scores[name]),
            from_highest.get(name, ""),
            from_none.get(name, ""),
        )
        for name in names
    ]


def told_apart(scores: Scores, other: str) -> dict[str, str]:
    """Whether Welch's tests tell memories apart from another at 0.05, with Holm's correction.

    Returns:
        "yes" or "no" by memory, for those with two seeds or more; the other needs two as well.
    """
    if len(scores.get(other, ())) < 2:
        return {}
    names = [name for name, values in scores.items() if name != other and len(values) > 1]
    p_values = holm([welch_test(scores[name], scores[other]).p for name in names])
    return {name: "yes" if p < 0.05 else "no" for name, p in zip(names, p_values, strict=True)}


def page() -> str:
    """The page of the documentation."""
    text, needs = advice.recorded(), advice.needs()
    parts = ["# Which memory?", text["before"].strip()]
    rows = [f"| `{n.word}` | [{n.title}](#{anchor(n.title)}) | {n.advice} |" for n in needs]
    lines = ["| `--need` | what has to be remembered | take |", "|---|---|---|", *rows]
    parts += ["\n".join(lines), text["picture"].strip(), text["scores"].strip(), highest()]
    rows = [
        f"| {one.name} | {one.found} | {one.made} ([rows](../results/{one.evidence}/README.md)) |"
        for one in advice.tried()
    ]
    lines = ["| task | result | training |", "|---|---|---|", *rows]
    parts += ["## Tasks that were tried", "\n".join(lines)]
    for need in needs:
        links = [f"[{folder}](../results/{folder}/README.md)" for folder in need.evidence]
        known = f" (rows: {', '.join(links)})" if links else ""
        parts += [
            f"## {need.title}",
            f"*{need.asks[0].upper()}{need.asks[1:]}.*",
            f"**Take** {need.advice}.",
            *filter(None, ["\n".join(map(item, advice.measures_of(need)))]),
            f"{need.why}{known}" + (f" *{need.made}.*" if need.made else ""),
            need.limits,
            f"```sh\n{need.command}\n```",
        ]
    return "\n\n".join([*parts, text["after"].strip()]) + "\n"


def anchor(title: str) -> str:
    """The anchor of a heading, as the site generates it."""
    return title.lower().replace(",", "").replace(" ", "-")


def item(measure: list[advice.Score]) -> str:
    """The means of one measure as a list item, with a link to their rows."""
    line = advice.ranking(measure)
    return f"- {line[0].upper()}{line[1:]} ([rows](../results/{measure[0].rows}/README.md))"


def highest() -> str:
    """A table of the highest scores in the first measure of every need, with the usual memories."""
    head = ["need", "measured", "seeds", "highest", "second", "third", *advice.USUAL]
    rows = [head, ["---"] * len(head)]
    for measure in (found[0] for need in advice.needs() if (found := advice.measures_of(need))):
        said = {s.memory: f"{s.mean:.2f} [{s.low:.2f}, {s.high:.2f}]" for s in measure}
        best = [f"`{name}` {text}" for name, text in said.items()][:3]
        usual = [said.get(name, "") for name in advice.USUAL]
        one = measure[0]
        rows.append([f"`{one.need}`", one.measured, advice.seeds_of(measure), *best, *usual])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


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
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
