"""Searches for a learning rate and an entropy cost: every pair that an agent was trained with."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from clew.lab.grid.results import Row
from clew.lab.studies.report.tables import MISSING
from clew.report.document import Cell, Column, Table


class Tried(NamedTuple):
    """One pair of an agent, over all tasks and seeds."""

    learning_rate: float
    entropy_cost: float
    mean: float
    """Score over the last steps of training."""
    trainings: int

    @property
    def pair(self) -> tuple[float, float]:
        """The learning rate and the entropy cost."""
        return self.learning_rate, self.entropy_cost


def tried_pairs(
    rows: Sequence[Row], model: str, score: Callable[[Row], float | None]
) -> list[Tried]:
    """Every pair that an agent was trained with, the best first.

    Pairs with fewer trainings than others come after them, whatever their mean, as it is over
    other tasks or seeds.

    Args:
        rows: with settings "TASK rate-R entropy-E".
        model: the agent.
        score: of a training; None where it counts for nothing.
    """
    found: dict[tuple[float, float], list[float]] = {}
    for row in rows:
        if row["model"] == model and (value := score(row)) is not None:
            _, rate, cost = row["setting"].rsplit(" ", 2)
            pair = float(rate.removeprefix("rate-")), float(cost.removeprefix("entropy-"))
            found.setdefault(pair, []).append(value)
    pairs = [Tried(*p, float(np.mean(values)), len(values)) for p, values in found.items()]
    return sorted(pairs, key=lambda tried: (tried.trainings, tried.mean), reverse=True)


def pairs_table(
    name: str,
    model: str,
    tried: Sequence[Tried],
    grid: tuple[Sequence[float], Sequence[float]],
    cell: Callable[[Tried], Cell],
) -> Table:
    """Every pair of an agent: learning rates down, entropy costs across.

    Args:
        name: of the table's file.
        model: the agent.
        tried: its pairs.
        grid: learning rates and entropy costs of the search.
        cell: what is shown of a pair.
    """
    found = {each.pair: each for each in tried}
    rates, costs = grid
    rows = []
    for rate in rates:
        pairs = [found.get((rate, cost)) for cost in costs]
        shown = [MISSING if pair is None else cell(pair) for pair in pairs]
        rows.append([Cell(f"rate {rate:g}"), *shown])
    columns = [Column(model), *(Column(f"entropy {cost:g}") for cost in costs)]
    return Table(name, model, columns, rows, "", [each._asdict() for each in tried])
