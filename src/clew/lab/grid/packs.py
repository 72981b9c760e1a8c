"""Groups a study's cells into programs: few to compile, none too long to lose."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from clew.lab.grid.study import Cell, Study

SEEDS_PER_PROGRAM = 10
"""Maximum seeds of a pack; more are distributed evenly over several packs."""
LANES_PER_PROGRAM = 60
"""Maximum cells of a pack."""


class Pack(NamedTuple):
    """Cells that run as one compiled program: one model, several seeds in one or more settings."""

    model: str
    settings: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def cells(self) -> list[Cell]:
        """Its cells: setting by setting, seed by seed."""
        return [Cell(self.model, setting, seed) for setting in self.settings for seed in self.seeds]

    def __str__(self) -> str:
        count = len(self.settings)
        where = self.settings[0] if count == 1 else f"{self.settings[0]} to {self.settings[-1]}"
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"
        return f"{self.model} on {where}, {seeds}"


def make_packs(study: Study, finished: Iterable[Cell] = ()) -> list[Pack]:
    """The packs that remain to be run, without the finished cells.

    The longest comes first; in a resumable study they are in the order of its seeds.
    """
    ended = set(finished)
    if study.resumable:
        return [
            Pack(model, (setting,), (seed,))
            for seed in study.seeds
            for setting in study.settings
            for model in study.models
            if (model, setting, seed) not in ended
        ]
    if study.varied:
        return _varied_packs(study, ended)
    groups: dict[tuple, list[str]] = {}
    for model, setting in itertools.product(study.models, study.settings):
        if left := tuple(n for n in study.seeds if (model, setting, n) not in ended):
            alike = model, _together(study, model, setting), left
            groups.setdefault(alike, []).append(setting)
    found = []
    for (model, _, seeds), settings in groups.items():
        lanes = len(settings) * len(seeds)
        programs = max(-(-lanes // LANES_PER_PROGRAM), -(-len(seeds) // SEEDS_PER_PROGRAM))
        programs = min(programs, len(seeds))
        found += [Pack(model, tuple(settings), seeds[i::programs]) for i in range(programs)]
    # Stable: equal ones keep the order.
    return sorted(found, key=lambda pack: pack_cost(study, pack), reverse=True)


def _varied_packs(study: Study, ended: set[Cell]) -> list[Pack]:
    """The settings of each task as one pack of one seed, seed by seed."""
    groups: dict[str, list[str]] = {}
    for name, task in study.settings.items():
        alike = task.env, dict(task.options), sorted(task.learning)
        groups.setdefault(repr(alike), []).append(name)
    found = [
        Pack(model, tuple(name for name in names if (model, name, seed) not in ended), (seed,))
        for seed in study.seeds
        for names in groups.values()
        for model in study.models
    ]
    return [pack for pack in found if pack.settings]


def split(pack: Pack) -> list[Pack]:
    """Splits a failed pack into smaller ones: by settings if it has several, otherwise by seeds."""
    if len(pack.settings) > 1:
        return [pack._replace(settings=(setting,)) for setting in pack.settings]
    return [pack._replace(seeds=(seed,)) for seed in pack.seeds]


def pack_steps(study: Study, pack: Pack) -> int:
    """Environment steps of a pack."""
    steps = (study.config(pack.model, setting).steps for setting in pack.settings)
    return sum(steps) * len(pack.seeds)


def pack_cost(study: Study, pack: Pack) -> float:
    """Weighted environment steps of a pack, in an arbitrary unit."""
    return study.weights.get(pack.model, 1.0) * pack_steps(study, pack)


def _together(study: Study, model: str, setting: str) -> tuple[str, ...]:
    """The common properties of settings that can share a program."""
    task, agent = study.settings[setting], study.models[model]
    # Observations of several sizes need an agent in which only the first product depends on the
    # size.
    first_alone = agent.network.encoder == "mlp" or agent.memory == "none"
    by_episodes = (
        study.episodes is not None and agent.learner.gathering.whole_episodes and task.decisions
    )
    if task.mix and task.together and first_alone and by_episodes:
        return (task.env, task.mix, task.together)
    return (setting,)
