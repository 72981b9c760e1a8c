"""The T-Maze study of Pramanik (2023), section 5.1, as a grid: `clew study tmaze`.

The thesis gives the architectures (Table A.2), the constants of A2C and the swept values (Table
A.1), but not which values won. The learning rates, entropy costs and gradient clipping here are
those of the authors' published configurations.

The grid has two editions of the six agents of Figures 5.2 and 5.3, each with controls that the
thesis does not have. "published" follows the authors' code; "repaired" follows the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from clew.agents.learners.a2c import A2CConfig
from clew.agents.network import NetworkConfig
from clew.errors import require_at_least, require_choice
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.grid.results import Row, mean_at_end
from clew.lab.studies.models import PublishedGRU, PublishedGTrXL, PublishedLSTM
from clew.lab.studies.published import GridOptions, PublishedStudy, whole_numbers
from clew.lab.studies.search import Search
from clew.lab.studies.tmaze.models import PublishedAReLiT, PublishedReLiT
from clew.names import recorded_name
from clew.run.config import TrainConfig

_LAYERS = {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "head_size": 64}

_CODED_ARELIT = _LAYERS | {
    "eta": 4,
    # The code counts vectors, and its 2 are Table A.2's r = 1, though at other frequencies.
    "r": 2,
    "frequencies": "code",
    "scale": "code",
    "tick": "carried",
    "epsilon": 1e-5,
    "chrono": 0,
}
_CODED_RELIT = _LAYERS | {
    "query": "double",
    "decay": "joint",
    "embedding_relu": False,
    "epsilon": 1e-10,
    "init_per": "head",
}
_ARELIT = recorded_name("memory", PublishedAReLiT)
_RELIT = recorded_name("memory", PublishedReLiT)
_GTRXL = recorded_name("memory", PublishedGTrXL)
# The band stays: without it learner and actor are different functions.
_CODED_GTRXL = _LAYERS | {"query_norm": False, "init": "lecun"}


def _preset(
    name: str, memory: str, options: dict[str, Any], learning_rate: float, entropy_cost: float
) -> TrainConfig:
    return TrainConfig(
        env="tmaze",
        env_options={"corridor_length": 120},
        memory=memory,
        memory_options=options,
        network=NetworkConfig(head_size=128),
        a2c=A2CConfig(
            num_envs=8,
            rollout_length=256,
            learning_rate=learning_rate,
            gamma=0.99,
            lam=0.95,
            entropy_cost=entropy_cost,
            value_cost=0.5,
            max_grad_norm=0.5,
        ),
        steps=10_000_000,
        preset=f"pramanik/{name}",
    )


PRESETS: dict[str, TrainConfig] = {
    config.preset: config
    for config in (
        _preset("lstm", "lstm", {"hidden_size": 600}, 1e-4, 1e-3),
        _preset("gru", "gru", {"hidden_size": 680}, 5e-4, 1e-2),
        _preset("gtrxl-128", _GTRXL, _CODED_GTRXL | {"window": 128}, 5e-4, 1e-2),
        _preset("gtrxl-256", _GTRXL, _CODED_GTRXL | {"window": 256}, 5e-4, 1e-3),
        _preset("relit-2", _RELIT, _CODED_RELIT | {"eta": 2}, 1e-4, 1e-3),
        _preset("relit-4", _RELIT, _CODED_RELIT | {"eta": 4}, 1e-4, 1e-3),
        _preset("arelit", _ARELIT, _CODED_ARELIT, 1e-4, 1e-3),
        # A control that the thesis does not have: AReLiT's width and depth, and no memory.
        _preset("none", "none", {"hidden_size": 128, "num_layers": 4}, 1e-4, 1e-3),
    )
}
"""Settings of the T-Maze experiments (section 5.1, Tables A.1 and A.2) by name, as coded."""

EDITIONS = ("published", "repaired")
AGENTS = ("lstm", "gru", "gtrxl-128", "gtrxl-256", "relit", "arelit")
"""The six agents of the thesis."""
CORRIDORS = (120, 140, 160, 180, 200)
"""Corridors of Figures 5.2 and 5.3 (section 5.1.2)."""
LONGER = (160, 200, 400, 1000)
"""Corridors on which agents trained on shorter ones are measured."""
STEPS, SEEDS = 3_000_000, 2
"""Defaults; the thesis has 10M steps and 50 seeds."""
LAST_STEPS = 100_000
"""Steps at the end of training whose episodes give the thesis's success rate (section 5.1.2)."""
TIME_LIMIT = 1000
"""Time limit of the authors' code; on corridors longer than half of it, twice their length is
used."""

LEARNING_RATES = (1e-3, 5e-4, 1e-4, 5e-5, 1e-5)
ENTROPY_COSTS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
SWEEP_STEPS, SWEEP_SEEDS = 5_000_000, 5
"""Steps and seeds of the search for these two (Table A.1 and appendix A.1)."""

_WIDEST_CODE = 256
"""Longest corridor whose positions fit in the 8 bits that the agents read."""
_EPISODES = 192

_HALF_WAVE = _LAYERS | {"eta": 4, "r": 3, "frequencies": "half_wave", "chrono": 0}
_GATED_AVERAGE = _LAYERS | {"eta": 4, "r": 1, "frequencies": "printed", "chrono": 0}

_WEIGHTS = {
    "gtrxl-128": 2.5,
    "gtrxl-256": 3.5,
    "gtrxl-128-banded": 2.5,
    "gtrxl-128-unbanded": 2.5,
    "relit": 1.5,
    "relit-2": 1.2,
    "relit-one-draw": 1.5,
    "transformer": 2.5,
    "none": 0.1,
}
"""Rough cost of a step relative to an LSTM's, for the time left."""


def study(edition: str = "published", corridors: Sequence[int] = CORRIDORS) -> Study:
    """The study's grid.

    Args:
        edition: "published": the agents as coded (GTrXL's learner sees all of its chunk, its actor
            a window; AReLiT's two frequencies coincide; ReLiT's gates are joint), and time-outs
            terminate an episode. "repaired": windows are banded, AReLiT is the library's, ReLiT the
            thesis's, and time-outs bootstrap from a value.
        corridors: lengths, at least 2.

    Raises:
        UserError: for another edition, or an impossible corridor.
    """
    require_choice("edition", edition, EDITIONS)
    for length in corridors:
        require_at_least("corridor", length, 2)
    return Study(
        name=grid_name(edition),
        models=models(edition),
        settings={f"corridor-{n}": setting(n, edition) for n in corridors},
        seeds=tuple(range(SEEDS)),
        steps=STEPS,
        evaluation=Evaluation(episodes=_EPISODES),
        score="success",
        weights=_WEIGHTS,
        curve_bins=75,
        resumable=True,
        last_steps=LAST_STEPS,
    )


def sweep(edition: str = "published", corridors: Sequence[int] = CORRIDORS) -> Study:
    """Table A.1's search: 25 pairs of learning rate and entropy cost for each agent of the thesis.

    The 25 pairs are lanes of one program for every agent, corridor and seed. The thesis takes the
    pair with the best mean success over the last 100K steps, all corridors and five seeds.

    Raises:
        UserError: for another edition, or an impossible corridor.
    """
    whole = study(edition, corridors)
    tasks = {name: Setting(task.env, task.options) for name, task in whole.settings.items()}
    return replace(
        whole.only(AGENTS),
        name=grid_name(edition, sweep=True),
        settings=SEARCH.settings(tasks),
        seeds=tuple(range(SWEEP_SEEDS)),
        steps=SWEEP_STEPS,
        curve_bins=SWEEP_STEPS // (LAST_STEPS // 2),
        resumable=False,
    )


def last_success(row: Row) -> float:
    """Success over the episodes of the last 100K steps; 0 if none ended there."""
    return mean_at_end(row, "success", LAST_STEPS) or 0.0


SEARCH = Search(LEARNING_RATES, ENTROPY_COSTS, last_success)
"""Chosen as in the thesis: by the mean success over the last 100K steps, all corridors and seeds
(appendix A.1)."""


def grid_name(edition: str, *, sweep: bool = False) -> str:
    """The name of an edition's grid, or of its search."""
    return f"pramanik/tmaze-{'sweep-' if sweep else ''}{edition}"


EDITION_OF = {grid_name(edition): edition for edition in EDITIONS}
"""Editions by the name of their grid."""
SEARCH_EDITION_OF = {grid_name(edition, sweep=True): edition for edition in EDITIONS}
"""Editions by the name of their search's grid."""


def models(edition: str = "published") -> dict[str, TrainConfig]:
    """The agents of an edition by name, the six of the thesis first, then the controls.

    A control has the learning rate and entropy cost of the agent that it controls for.
    """
    coded = {name.removeprefix("pramanik/"): config for name, config in PRESETS.items()}
    # Table A.2 has eta = 4, the authors' configuration 2.
    agents = {name: coded["relit-4" if name == "relit" else name] for name in AGENTS}
    gtrxl, arelit = agents["gtrxl-128"], agents["arelit"]
    if edition == "published":
        for name in ("gtrxl-128", "gtrxl-256"):
            agents[name] = _with(agents[name], banded=False)
        own = {"gtrxl-128-banded": gtrxl, "relit-2": coded["relit-2"]}
        own |= {
            f"{name}-one-draw": replace(_with(agents[name], init_per="product"), memory=memory)
            for name, memory in _ONE_DRAW.items()
        }
    else:
        agents |= {
            "gtrxl-128": _of(agents["gtrxl-128"], "gtrxl", _LAYERS | {"window": 128}),
            "gtrxl-256": _of(agents["gtrxl-256"], "gtrxl", _LAYERS | {"window": 256}),
            "relit": _of(agents["relit"], "relit", _LAYERS | {"eta": 4}),
            "arelit": _of(arelit, "arelit", _HALF_WAVE),
        }
        full = _HALF_WAVE | {"frequencies": "full_wave"}
        own = {
            "gtrxl-128-unbanded": _of(gtrxl, _GTRXL, _LAYERS | {"window": 128, "banded": False}),
            "arelit-full-wave": _of(arelit, "arelit", full),
            "arelit-half-wave-1": _of(arelit, "arelit", _HALF_WAVE | {"r": 1}),
        }
    one_layer = _with(agents["gtrxl-256"], num_layers=1)
    return {
        **agents,
        **own,
        "none": coded["none"],
        "gated-average": _of(arelit, _ARELIT, _GATED_AVERAGE),
        "linear-transformer": _of(arelit, "linear_transformer", _LAYERS),
        "gtrxl-256-one-layer": one_layer,
        "transformer": _of(arelit, "transformer", _LAYERS | {"window": 256}),
    }


def setting(length: int, edition: str = "published") -> Setting:
    """A corridor, and the longer ones on which its agents are measured.

    An unstretched longer corridor shows the agent positions that it has never seen, including the
    junction, and beyond 256 positions more bits than it can read. "stretched" corridors show each
    position of the agent's own corridor for several steps, so that only the time is new.
    """
    further = {}
    for longer in (n for n in LONGER if n > length):
        if longer <= _WIDEST_CODE:
            further[f"corridor-{longer}"] = _options(longer, edition)
        stretched = _options(longer, edition) | {"shown_length": length}
        further[f"corridor-{longer}-stretched"] = stretched
    return Setting("tmaze", _options(length, edition), further=further, further_needs="junction")


def _options(length: int, edition: str) -> dict[str, Any]:
    rule = "terminate" if edition == "published" else "truncate"
    limit = max(TIME_LIMIT, 2 * length)
    return {"corridor_length": length, "time_limit": limit, "on_time_limit": rule}


def _with(config: TrainConfig, **options: Any) -> TrainConfig:
    return replace(config, memory_options=config.memory_options | options, preset="")


_ONE_DRAW = {
    "lstm": recorded_name("memory", PublishedLSTM),
    "gru": recorded_name("memory", PublishedGRU),
    "relit": _RELIT,
}
"""The memories with smaller weights than the authors': one matrix over all gates or heads."""


def _of(config: TrainConfig, memory: str, options: dict[str, Any]) -> TrainConfig:
    return replace(config, memory=memory, memory_options=options, preset="")


@dataclass(frozen=True)
class TMazeOptions(GridOptions):
    """Options of `clew study tmaze`."""

    edition: str = "published"
    """published: as in the authors' code. repaired: as meant in the text."""
    corridors: str = ""
    """Only these corridor lengths, separated by commas; by default the thesis's five."""
    sweep: bool = False
    """Search for learning rates and entropy costs: 25 pairs, in one program, with 5 seeds of 5M
    steps; --steps and --seeds change it."""


def grid(options: TMazeOptions) -> Study:
    """The grid for these options."""
    corridors = whole_numbers("corridors", options.corridors) or CORRIDORS
    make = sweep if options.sweep else study
    return options.narrow(make(options.edition, corridors))


STUDY = PublishedStudy(
    TMazeOptions, grid, presets=PRESETS, pages="clew.lab.studies.tmaze.page:page_of"
)
