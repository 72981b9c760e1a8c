"""Pramanik's (2023) Memory Maze study, section 5.2, from pixels: `clew study memory-maze`.

The grid of Figures 5.5 and 5.7, and the search of Table A.3. Every cell is a run of its own,
asynchronous unless the options say otherwise.

The thesis trained with asynchronous PPO in Sample Factory. It says neither which learning rate and
entropy cost of Table A.3's sweep won, nor which encoder stood before the memory. So here both are
in the middle of their sweeps, and the encoder and everything else that the tables leave out are
Sample Factory's own for DMLab, from which the thesis started: an IMPALA network with 512 features
and relus, Adam's epsilon of 1e-6, and a ratio that is clipped at 1 / (1 + clip). Deviations:
pictures are only divided by 255, where Sample Factory also normalises them, and the value's targets
are not normalised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clew.agents.learners.ppo import PPOConfig
from clew.agents.network import NetworkConfig
from clew.errors import UserError, require_at_least, require_choice
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.models import PublishedLSTM
from clew.lab.studies.published import GridOptions, PublishedStudy, names, whole_numbers
from clew.lab.studies.search import Search
from clew.lab.studies.tmaze.models import PublishedAReLiT
from clew.names import recorded_name
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.config import RUNNERS, TrainConfig
from clew.run.folder import slug

SIZES = (9, 11, 13, 15)
"""Sides of the mazes of Figure 5.5."""
LEARNING_RATES = (2.5e-3, 2.5e-4, 2.5e-5)
"""Table A.3's sweep."""
ENTROPY_COSTS = (0.03, 0.003, 0.0003)
"""Table A.3's sweep."""

_LAYERS = {"hidden_size": 256, "num_layers": 4, "num_heads": 8, "head_size": 64}
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    # LSTM and AReLiT start as they did before their defaults changed, so that studies can continue.
    "lstm": (recorded_name("memory", PublishedLSTM), {"hidden_size": 768, "init_per": "product"}),
    "gtrxl-64": ("gtrxl", _LAYERS | {"window": 64}),
    "gtrxl-128": ("gtrxl", _LAYERS | {"window": 128}),
    "gtrxl-256": ("gtrxl", _LAYERS | {"window": 256}),
    "arelit": (
        recorded_name("memory", PublishedAReLiT),
        _LAYERS | {"eta": 4, "r": 7, "frequencies": "printed", "chrono": 0},
    ),
    # A control that the thesis does not have.
    "none": ("none", {"hidden_size": 256, "num_layers": 4}),
}


def maze(size: int) -> str:
    """The task's name for a maze of that side."""
    return f"gymnasium:clew/MemoryMaze-{size}x{size}-v0"


def _preset(name: str, memory: str, options: dict[str, Any]) -> TrainConfig:
    return TrainConfig(
        env=maze(9),
        env_options={},
        memory=memory,
        memory_options=options,
        network=NetworkConfig(encoder="impala", picture_size=512, head_size=0),
        algorithm="ppo",
        ppo=PPOConfig(
            num_envs=64,
            rollout_length=200,
            sequence_length=100,
            minibatches=4,
            epochs=1,
            learning_rate=2.5e-4,
            gamma=0.99,
            lam=0.95,
            clip_ratio=0.1,
            lower_clip="reciprocal",
            value_clip=1.0,
            entropy_cost=0.003,
            value_cost=0.5,
            max_grad_norm=4.0,
            adam_eps=1e-6,
        ),
        steps=100_000_000,
        preset=f"memory-maze/{name}",
    )


PRESETS: dict[str, TrainConfig] = {
    config.preset: config for config in (_preset(n, *what) for n, what in _MODELS.items())
}
"""Settings of the Memory Maze experiments (section 5.2) by name; `--env` chooses another maze."""

NAME, SEARCH_NAME = "pramanik/memory-maze", "pramanik/memory-maze-sweep"
"""Names of the grid and of the search."""
SWEPT = ("lstm", "gtrxl-256", "arelit")
"""Agents for which the thesis searched a learning rate and an entropy cost."""
SWEEP_SIZE = 11
STEPS, SWEEP_STEPS, SEEDS = 100_000_000, 15_000_000, 3
RUNNER, ACTORS, ENVIRONMENTS = "async", 32, 64
BATCH = 3200
"""Environment steps per gradient step (Table A.3)."""
LAST_STEPS = 1_000_000
"""Steps at the end of training whose episodes decide the search (appendix A.2), and steps of a
curve's bin."""
LONGEST = 4000
"""Steps of an episode in the largest maze."""
CHECKPOINT_SECONDS = 300.0  # GTrXL-256's memory in 64 environments alone is 340 MB
WEIGHTS = {"none": 0.7, "lstm": 0.9, "arelit": 1.2, "gtrxl-64": 1.2, "gtrxl-128": 1.4}
"""Cost of a step by model in units of GTrXL-256's, roughly, for the time left."""


def study(
    *,
    mazes: Sequence[int] = SIZES,
    tasks: Sequence[str] = (),
    actors: int = ACTORS,
    environments: int = ENVIRONMENTS,
    runner: str = RUNNER,
) -> Study:
    """The study's grid, by default of the thesis's size.

    Args:
        mazes: sides of the mazes: 9, 11, 13 or 15.
        tasks: other environments instead, "gymnasium:ID" or "module:factory".
        actors: number of acting processes; unused with runner "sync".
        environments: number over all actors. A gradient step reads as many sequences as there are,
            up to Table A.3's 3,200 steps.
        runner: "async" or "sync".

    Raises:
        UserError: for an unknown maze, or an impossible number.
    """
    require_choice("runner", runner, RUNNERS)
    require_at_least("actors", actors, 1)
    require_at_least("environments", environments, 1)
    for size in mazes:
        if size not in SIZES:
            known = ", ".join(map(str, SIZES))
            raise UserError(f"a maze of Memory Maze has side {known}, got {size}")
    named = {f"{n}x{n}": maze(n) for n in mazes}
    if tasks:
        named = {slug(task): task for task in tasks}
    models = {
        name.removeprefix("memory-maze/"): _of_size(config, actors, environments, runner)
        for name, config in PRESETS.items()
    }
    return Study(
        name=NAME,
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


def sweep(**size: Any) -> Study:
    """Table A.3's search: 9 pairs of learning rate and entropy cost for each of three agents.

    The thesis takes the pair with the highest mean return over the last 1M of 15M steps and three
    seeds, in the maze of 11x11. Arguments and errors are those of `study`.
    """
    options: dict[str, Any] = {"mazes": (SWEEP_SIZE,)}
    whole = study(**options | size)
    return replace(
        whole.only(SWEPT),
        name=SEARCH_NAME,
        settings=SEARCH.settings(whole.settings),
        steps=SWEEP_STEPS,
        curve_bins=SWEEP_STEPS // LAST_STEPS,
    )


SEARCH = Search(LEARNING_RATES, ENTROPY_COSTS, lambda row: row["last"]["return"])
"""Chosen as in the thesis: by the mean return over the last 1M steps (or as many as the rows have)
and over seeds (appendix A.2)."""


def with_rates(whole: Study, rates: Mapping[str, tuple[float, float]]) -> Study:
    """The study with other learning rates and entropy costs, by agent.

    GTrXL's other windows use those of "gtrxl-256", the only one that was searched, and "none" those
    of "arelit"; agents without a pair keep their own.
    """
    searched = {"gtrxl-64": "gtrxl-256", "gtrxl-128": "gtrxl-256", "none": "arelit"}
    models = {}
    for name, config in whole.models.items():
        pair = rates.get(name) or rates.get(searched.get(name, ""))
        if pair:
            config = config.with_learning(learning_rate=pair[0], entropy_cost=pair[1])
            config = replace(config, preset="")
        models[name] = config
    return replace(whole, models=models)


def with_last_steps(whole: Study) -> Study:
    """The study with as many last steps of training as its budget allows.

    They are 1M, or a tenth of shorter trainings, and never fewer than all environments need for an
    episode of the largest maze: episodes there start and end together.
    """
    assert whole.steps is not None
    envs = next(iter(whole.models.values())).learning.num_envs
    last = min(LAST_STEPS, max(whole.steps // 10, LONGEST * envs))
    return replace(whole, last_steps=last)


def _of_size(config: TrainConfig, actors: int, environments: int, runner: str) -> TrainConfig:
    ppo = replace(config.ppo, num_envs=environments)
    most = BATCH // ppo.sequence_length
    # The fewest gradient steps of equal size, none with more than 32 sequences.
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


@dataclass(frozen=True)
class MemoryMazeOptions(GridOptions):
    """Options of `clew study memory-maze`."""

    mazes: str = ""
    """Only mazes with these sides, separated by commas; empty for the thesis's four, 9,11,13,15."""
    env: str = ""
    """Other environments instead of the mazes, gymnasium:ID or module:factory, separated by
    commas."""
    runner: str = ""
    """async, the study's default, or sync."""
    actors: int = 0
    """Number of acting processes; 0 for the thesis's 32."""
    environments: int = 0
    """Number of environments over all actors; 0 for the thesis's 64."""
    rates_from: str = ""
    """The folder of a --sweep, from which each agent takes its best learning rate and entropy cost;
    empty for the middle ones."""
    sweep: bool = False
    """Search for learning rates and entropy costs: 9 pairs, each a run, with 3 seeds of 15M steps;
    --steps and --seeds change it."""


def grid(options: MemoryMazeOptions) -> Study:
    """The grid for these options.

    Raises:
        UserError: for options that exclude each other, or a folder that does not belong to a
            search.
    """
    if options.mazes and options.env:
        raise UserError("--mazes and --env exclude each other")
    if options.sweep and options.rates_from:
        raise UserError("--sweep and --rates-from exclude each other")
    given = {
        "mazes": whole_numbers("mazes", options.mazes),
        "tasks": names(options.env),
        "runner": options.runner,
        "actors": options.actors,
        "environments": options.environments,
    }
    make = sweep if options.sweep else study
    whole = make(**{name: value for name, value in given.items() if value})
    whole = options.narrow(whole)
    if options.rates_from:
        whole = with_rates(whole, SEARCH.best_rates(options.rates_from, SEARCH_NAME))
    return with_last_steps(whole)


STUDY = PublishedStudy(
    MemoryMazeOptions, grid, presets=PRESETS, pages="clew.lab.studies.memory_maze.page:page_of"
)
