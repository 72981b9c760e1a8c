"""Pramanik's (2023) Memory Maze study, section 5.2: `clew study pramanik --part memory-maze`.

The grid of Figures 5.5 and 5.7, and the search of Table A.3. Every cell is a run of its own,
asynchronous unless told otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clew.errors import UserError, require_at_least, require_choice
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.memory_maze.settings import (
    ENTROPY_COSTS,
    LEARNING_RATES,
    PRESETS,
    SIZES,
    maze,
)
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.config import RUNNERS, TrainConfig
from clew.run.folder import plain

PART, EDITION = "memory-maze", "published"
SWEPT = ("lstm", "gtrxl-256", "arelit")
"""Agents whose learning rate and entropy cost the thesis searched for."""
SWEEP_SIZE = 11
STEPS, SWEEP_STEPS, SEEDS = 100_000_000, 15_000_000, 3
ACTORS, ENVIRONMENTS = 32, 64
BATCH = 3200
"""Steps of a gradient step, of Table A.3."""
LAST_STEPS = 1_000_000
"""Steps at the end of training whose episodes choose (appendix A.2), and are points of curves."""
LONGEST = 4000
"""Steps of an episode in the largest maze."""
CHECKPOINT_SECONDS = 300.0  # GTrXL-256's memory in 64 environments alone is 340 MB
WEIGHTS = {"none": 0.7, "lstm": 0.9, "arelit": 1.2, "gtrxl-64": 1.2, "gtrxl-128": 1.4}
"""Cost of a step by model in units of GTrXL-256's, roughly, for the time left."""


def study(
    part: str = PART,
    edition: str = EDITION,
    *,
    mazes: Sequence[int] = SIZES,
    tasks: Sequence[str] = (),
    actors: int = ACTORS,
    environments: int = ENVIRONMENTS,
    runner: str = "async",
) -> Study:
    """The study's grid, of the thesis's size unless told otherwise.

    Args:
        part: "memory-maze".
        edition: "published".
        mazes: sides of the mazes: 9, 11, 13 or 15.
        tasks: other environments in their place, "gymnasium:ID" or "module:factory".
        actors: processes that act; with runner "sync" it counts for nothing.
        environments: of all actors together. A gradient step reads as many sequences as there are
            up to Table A.3's 3,200 steps.
        runner: "async" or "sync".

    Raises:
        UserError: for another part or edition, an unknown maze, or an impossible number.
    """
    require_choice("part", part, (PART,))
    require_choice("edition", edition, (EDITION,))
    require_choice("runner", runner, RUNNERS)
    require_at_least("actors", actors, 1)
    require_at_least("environments", environments, 1)
    for size in mazes:
        if size not in SIZES:
            known = ", ".join(map(str, SIZES))
            raise UserError(f"a maze of Memory Maze has side {known}, got {size}")
    named = {f"{n}x{n}": maze(n) for n in mazes}
    if tasks:
        named = {plain(task): task for task in tasks}
    models = {
        name.removeprefix("memory-maze/"): _of_size(config, actors, environments, runner)
        for name, config in PRESETS.items()
    }
    return Study(
        name="pramanik/memory-maze",
        models=models,
        settings={name: Setting(task) for name, task in named.items()},
        seeds=tuple(range(SEEDS)),
        steps=STEPS,
        evaluation=Evaluation(episodes=0),
        weights=WEIGHTS,
        curve_bins=STEPS // LAST_STEPS,
        resumable=True,
        whole_machine=True,
        last_steps=LAST_STEPS,
    )


def sweep(part: str = PART, edition: str = EDITION, **size: Any) -> Study:
    """Table A.3's search: 9 pairs of learning rate and entropy cost for each of three agents.

    The thesis takes the pair with the highest mean return over the last 1M of 15M steps and three
    seeds, in the maze of 11x11.

    Args:
        part: "memory-maze".
        edition: "published".
        size: as for `study`; the maze is 11x11 unless others are named.

    Raises:
        UserError: as `study`.
    """
    options: dict[str, Any] = {"mazes": (SWEEP_SIZE,)}
    whole = study(part, edition, **options | size)
    settings = {
        f"{name} rate-{rate:g} entropy-{cost:g}": replace(
            task, ppo={"learning_rate": rate, "entropy_cost": cost}
        )
        for name, task in whole.settings.items()
        for rate in LEARNING_RATES
        for cost in ENTROPY_COSTS
    }
    return replace(
        whole.only(SWEPT),
        name="pramanik/memory-maze-sweep",
        settings=settings,
        steps=SWEEP_STEPS,
        curve_bins=SWEEP_STEPS // LAST_STEPS,
    )


def with_rates(whole: Study, rates: Mapping[str, tuple[float, float]]) -> Study:
    """The study with other learning rates and entropy costs.

    Args:
        whole: of `study`.
        rates: by agent. GTrXL's other windows take those of "gtrxl-256", which alone was searched
            for, and "none" those of "arelit"; agents without a pair keep their own.
    """
    searched = {"gtrxl-64": "gtrxl-256", "gtrxl-128": "gtrxl-256", "none": "arelit"}
    models = {}
    for name, config in whole.models.items():
        pair = rates.get(name) or rates.get(searched.get(name, ""))
        if pair:
            ppo = replace(config.ppo, learning_rate=pair[0], entropy_cost=pair[1])
            config = replace(config, ppo=ppo, preset="")
        models[name] = config
    return replace(whole, models=models)


def with_last_steps(whole: Study) -> Study:
    """The study with as many steps at the end of training as its budget has room for.

    They are 1M, or of shorter trainings a tenth, and never fewer than all environments take for
    an episode of the largest maze: episodes there begin and end together.
    """
    assert whole.steps is not None
    envs = next(iter(whole.models.values())).ppo.num_envs
    last = min(LAST_STEPS, max(whole.steps // 10, LONGEST * envs))
    return replace(whole, last_steps=last)


def _of_size(config: TrainConfig, actors: int, environments: int, runner: str) -> TrainConfig:
    ppo = replace(config.ppo, num_envs=environments)
    most = BATCH // ppo.sequence_length
    # The fewest gradient steps of equal size, none of more than 32 sequences.
    counts = (n for n in range(1, ppo.sequences + 1) if ppo.sequences % n == 0)
    ppo = replace(ppo, minibatches=next(n for n in counts if ppo.sequences <= n * most))
    return replace(
        config,
        ppo=ppo,
        runner=runner,
        asynchronous=AsyncConfig(actors=actors),
        checkpoint_seconds=CHECKPOINT_SECONDS,
        preset="",
    )
