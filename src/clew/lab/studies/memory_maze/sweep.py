"""The search of Table A.3: which learning rate and entropy cost each agent does best with."""

from collections.abc import Sequence
from pathlib import Path

from clew.errors import UserError
from clew.lab.grid.results import Row
from clew.lab.studies.memory_maze.settings import ENTROPY_COSTS, LEARNING_RATES
from clew.lab.studies.report.costs import made
from clew.lab.studies.report.edition import Edition, read_edition
from clew.lab.studies.report.searched import Tried, pairs_table, tried_pairs
from clew.report.document import Block, Cell, Column, Heading, Table, Text, counted, listed

NAME = "pramanik/memory-maze-sweep"


def tried(rows: Sequence[Row], model: str) -> list[Tried]:
    """Every pair that an agent was trained with, the best first (`tried_pairs`).

    As the thesis chooses: by the mean return over the last 1M steps (or as many as the rows tell
    of), over seeds (appendix A.2). A training in which no episode ended at the end counts for
    nothing.
    """
    return tried_pairs(rows, model, lambda row: row["last"]["return"])


def best_rates(folder: str | Path) -> dict[str, tuple[float, float]]:
    """The best learning rate and entropy cost of every agent that a search has tried.

    Args:
        folder: of the search, or its name in runs/.

    Raises:
        UserError: if it is none, or has no finished training.
    """
    edition = read_edition(folder)
    if edition.name != NAME:
        raise UserError(f"{edition.folder} is of {edition.name}, not a search ({NAME})")
    rows = rows_of_budget(edition)
    found = {model: tried(rows, model) for model in edition.models}
    return {model: pairs[0].pair for model, pairs in found.items() if pairs}


def rows_of_budget(edition: Edition) -> list[Row]:
    """The rows of the largest budget that a folder has any of."""
    steps = max(row["steps"] for row in edition.rows)
    return [row for row in edition.rows if row["steps"] == steps]


def sweep_blocks(editions: Sequence[Edition], note: str) -> list[Block]:
    """All blocks of the report of searches."""
    return [block for edition in editions for block in _edition(edition, note)]


def _edition(edition: Edition, note: str) -> list[Block]:
    rows = rows_of_budget(edition)
    tasks = list(dict.fromkeys(row["setting"].rsplit(" ", 2)[0] for row in rows))
    seeds, last = counted(len(edition.seeds), "seed"), rows[0]["last"]["steps"]
    text = (
        f"{counted(len(rows), 'training')} on {listed(tasks)}, {seeds}, {rows[0]['steps']:,} steps "
        f"each; the last {last:,} choose. The thesis searches with 3 seeds of 15M steps in the "
        "maze of 11x11, and the last 1M choose; it does not say which pairs won."
    )
    return [
        Heading(edition.name, 1, edition.slug),
        Text(text),
        _best(edition, rows),
        *(_pairs(edition, rows, model) for model in edition.models if tried(rows, model)),
        made(edition, note),
    ]


def _best(edition: Edition, rows: Sequence[Row]) -> Table:
    lines = []
    for model in edition.models:
        for best in tried(rows, model)[:1]:
            pair = f"{best.learning_rate:g}, {best.entropy_cost:g}"
            mean = Cell(f"{best.mean:.2f}", (counted(best.trainings, "training"),))
            lines.append([Cell(model), Cell(pair), mean])
    return Table(
        f"{edition.slug}-best",
        "Learning rate and entropy cost, chosen as the thesis does",
        [Column(head) for head in ("agent", "best here", "return")],
        lines,
        "Mean return over the last steps, over seeds.",
    )


def _pairs(edition: Edition, rows: Sequence[Row], model: str) -> Table:
    grid, name = (LEARNING_RATES, ENTROPY_COSTS), f"{edition.slug}-{model}"
    return pairs_table(name, model, tried(rows, model), grid, lambda p: Cell(f"{p.mean:.2f}"))
