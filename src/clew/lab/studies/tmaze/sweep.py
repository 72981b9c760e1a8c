"""The search of Table A.1: which learning rate and entropy cost each agent does best with."""

from collections.abc import Sequence

from clew.lab.grid.results import Row
from clew.lab.studies.report.costs import made
from clew.lab.studies.report.edition import Edition
from clew.lab.studies.report.searched import Tried, pairs_table, tried_pairs
from clew.lab.studies.report.tables import MISSING, shade
from clew.lab.studies.tmaze.grid import ENTROPY_COSTS, LAST_STEPS, LEARNING_RATES, models
from clew.report.document import Block, Cell, Column, Heading, Table, Text, counted, listed

NAME = "pramanik/tmaze-sweep-"


def tried(rows: Sequence[Row], model: str) -> list[Tried]:
    """Every pair that an agent was trained with, the best first (`tried_pairs`).

    As the thesis chooses: by the mean success over the last 100K steps, over all corridors and
    seeds (appendix A.1).
    """
    return tried_pairs(rows, model, last_success)


def last_success(row: Row) -> float:
    """Success over the episodes of the last 100K steps, 0 if none ended there."""
    curve = row["curve"]
    points = zip(curve["steps"], curve["episodes"], curve["success"], strict=True)
    end = curve["steps"][-1]
    ended = [(n, s) for step, n, s in points if step > end - LAST_STEPS and n]
    return sum(n * s for n, s in ended) / sum(n for n, _ in ended) if ended else 0.0


def sweep_blocks(editions: Sequence[Edition], note: str) -> list[Block]:
    """All blocks of the report of searches."""
    return [block for edition in editions for block in _edition(edition, note)]


def _edition(edition: Edition, note: str) -> list[Block]:
    corridors = sorted({int(r["setting"].split(" ")[0].split("-")[1]) for r in edition.rows})
    steps = sorted({row["steps"] for row in edition.rows})
    text = (
        f"{counted(len(edition.rows), 'training')} on corridors of "
        f"{listed([str(n) for n in corridors])}, {counted(len(edition.seeds), 'seed')}, "
        f"{listed([f'{n:,}' for n in steps])} steps each. The thesis searches with 5 seeds of 5M "
        "steps on five corridors."
    )
    return [
        Heading(edition.name, 1, edition.slug),
        Text(text),
        _best(edition),
        *(_pairs(edition, model) for model in edition.models if tried(edition.rows, model)),
        made(edition, note),
    ]


def _best(edition: Edition) -> Table:
    own = models(edition.name.removeprefix(NAME))
    rows = []
    for model in edition.models:
        pairs = tried(edition.rows, model)
        if not pairs:
            continue
        best, used = pairs[0], own[model].a2c
        authors = [p for p in pairs if p.pair == (used.learning_rate, used.entropy_cost)]
        rows.append(
            [
                Cell(model),
                Cell(f"{best.learning_rate:g}, {best.entropy_cost:g}"),
                Cell(f"{best.mean:.3f}", (counted(best.trainings, "training"),)),
                Cell(f"{used.learning_rate:g}, {used.entropy_cost:g}"),
                Cell(f"{authors[0].mean:.3f}") if authors else MISSING,
            ]
        )
    heads = ("agent", "best here", "success", "authors' configuration", "its success")
    return Table(
        f"{edition.slug}-best",
        "Learning rate and entropy cost, chosen as the thesis does",
        [Column(head) for head in heads],
        rows,
        "Mean success over the last 100K steps, over all corridors and seeds.",
    )


def _pairs(edition: Edition, model: str) -> Table:
    grid, name = (LEARNING_RATES, ENTROPY_COSTS), f"{edition.slug}-{model}"
    return pairs_table(name, model, tried(edition.rows, model), grid, _shaded)


def _shaded(pair: Tried) -> Cell:
    return Cell(f"{pair.mean:.2f}", shade=shade(pair.mean))
