"""The search of Table A.1: which learning rate and entropy cost each agent does best with."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clew.studies.engine.results import Row
from clew.studies.report.costs import made
from clew.studies.report.document import Block, Cell, Column, Heading, Table, Text
from clew.studies.report.edition import Edition
from clew.studies.report.tables import MISSING, shade
from clew.studies.report.words import counted, listed
from clew.studies.tmaze import ENTROPY_COSTS, LAST_STEPS, LEARNING_RATES, models

NAME = "pramanik/tmaze-sweep-"


class Tried(NamedTuple):
    """One pair of an agent, over all corridors and seeds."""

    learning_rate: float
    entropy_cost: float
    mean: float
    trainings: int


def tried(rows: Sequence[Row], model: str) -> list[Tried]:
    """Every pair that an agent was trained with, the best first.

    As the thesis chooses: by the mean success over the last 100K steps, over all corridors and
    seeds (appendix A.1). Pairs with fewer trainings than others come after them, whatever their
    mean, as it is over other corridors.
    """
    found: dict[tuple[float, float], list[float]] = {}
    for row in rows:
        if row["model"] == model:
            _, rate, cost = row["setting"].split(" ")
            pair = float(rate.removeprefix("rate-")), float(cost.removeprefix("entropy-"))
            found.setdefault(pair, []).append(last_success(row))
    pairs = [Tried(*p, float(np.mean(values)), len(values)) for p, values in found.items()]
    return sorted(pairs, key=lambda pair: (pair.trainings, pair.mean), reverse=True)


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
        authors = [p for p in pairs if _pair(p) == (used.learning_rate, used.entropy_cost)]
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
    found = {_pair(pair): pair for pair in tried(edition.rows, model)}
    rows = []
    for rate in LEARNING_RATES:
        pairs = [found.get((rate, cost)) for cost in ENTROPY_COSTS]
        rows.append([Cell(f"rate {rate:g}"), *map(_shaded, pairs)])
    columns = [Column(model), *(Column(f"entropy {cost:g}") for cost in ENTROPY_COSTS)]
    records = [pair._asdict() for pair in found.values()]
    return Table(f"{edition.slug}-{model}", model, columns, rows, "", records)


def _shaded(pair: Tried | None) -> Cell:
    return MISSING if pair is None else Cell(f"{pair.mean:.2f}", shade=shade(pair.mean))


def _pair(pair: Tried) -> tuple[float, float]:
    return pair.learning_rate, pair.entropy_cost
