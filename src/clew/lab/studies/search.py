"""A search for a learning rate and an entropy cost, with the pairs as settings of a study."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clew.errors import UserError
from clew.lab.grid import Setting
from clew.lab.grid.results import Row
from clew.lab.studies.report.data import read_study


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


@dataclass(frozen=True)
class Search:
    """The search space and the score."""

    learning_rates: Sequence[float]
    entropy_costs: Sequence[float]
    score: Callable[[Row], float | None]
    """The score of a training; None if it does not count."""

    def settings(self, tasks: Mapping[str, Setting]) -> dict[str, Setting]:
        """Every task with every pair, called "TASK rate-R entropy-E"."""
        return {
            f"{name} rate-{rate:g} entropy-{cost:g}": replace(
                task, learning={"learning_rate": rate, "entropy_cost": cost}
            )
            for name, task in tasks.items()
            for rate in self.learning_rates
            for cost in self.entropy_costs
        }

    def tried(self, rows: Sequence[Row], model: str) -> list[Tried]:
        """Every pair with which an agent was trained, the best first.

        Pairs with fewer trainings come last, whatever their mean, as it is over other tasks or
        seeds.
        """
        found: dict[tuple[float, float], list[float]] = {}
        for row in rows:
            if row["model"] == model and (value := self.score(row)) is not None:
                _, rate, cost = row["setting"].rsplit(" ", 2)
                pair = float(rate.removeprefix("rate-")), float(cost.removeprefix("entropy-"))
                found.setdefault(pair, []).append(value)
        pairs = [Tried(*p, float(np.mean(values)), len(values)) for p, values in found.items()]
        return sorted(pairs, key=lambda tried: (tried.trainings, tried.mean), reverse=True)

    def best_rates(self, folder: str | Path, name: str) -> dict[str, tuple[float, float]]:
        """The best learning rate and entropy cost of every agent in the search.

        Raises:
            UserError: if the folder is not of the search's grid, called `name`, or has no finished
                training.
        """
        data = read_study(folder)
        if data.name != name:
            raise UserError(f"{data.folder} belongs to {data.name}, not to a search ({name})")
        rows = data.of_one_budget().rows
        found = {model: self.tried(rows, model) for model in data.models}
        return {model: pairs[0].pair for model, pairs in found.items() if pairs}
