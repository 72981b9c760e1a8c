"""The settings of Makkink (2021), "Transformers as memory systems in reinforcement learning".

The thesis gives the sizes (Table 3.1) and the algorithm; the published code decides the rest. The
settings here follow the code, including its differences from the text: gates that are recurrent
nets, a residual connection and a norm inside every attention, no gradient into earlier inputs, no
coordinates, returns scaled within every episode, and the same episodes in every run.

`study` makes the whole grid, in one of four editions that it describes: `clew study makkink`.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from clew.agents.learners.a2c import A2CConfig
from clew.agents.network import NetworkConfig
from clew.errors import require_choice
from clew.lab.grid import Evaluation, Expected, Setting, Study
from clew.lab.studies.makkink.floors import distributed_memory_floors, memory_chain_floors
from clew.lab.studies.makkink.models import (
    PublishedIntegrated,
    PublishedReZero,
    PublishedTransformerXL,
    PublishedUniversal,
)
from clew.lab.studies.models import PublishedGRU, PublishedGTrXL, PublishedLSTM
from clew.lab.studies.published import GridOptions, PublishedStudy
from clew.names import recorded_name
from clew.run.config import TrainConfig

MEMORY_LENGTH = 20
"""memory_length of the presets' task; another value needs a rollout_length of one more."""

EPISODES = 10_000

_WINDOW: dict[str, Any] = {
    "hidden_size": 64,
    "num_layers": 1,
    "num_heads": 1,
    "head_size": 64,
    "window": 100,
    "ffn_size": 32,
    "attention_bias": False,
    "embedding": False,
    "inner_residual": True,
    "gradient": "current",
    "init": "uniform",
}
_HALTING: dict[str, Any] = {
    "max_steps": 6,
    "threshold": 0.9,
    "coordinates": False,
    "blend": "running",
    "unreached": "zero",
}
_LSTM = {
    "hidden_size": 64,
    "num_layers": 1,
    "all_biases": True,
    "init": "uniform",
    "init_per": "product",
}
_GTRXL = _WINDOW | {"gate": "temporal_gru", "norm": "around"}
_INTEGRATED = _WINDOW | _HALTING | {"gate": "temporal_gru", "crossed_states": True}


def _chain(name: str, memory: type, options: dict[str, Any], projection: str) -> TrainConfig:
    length = MEMORY_LENGTH + 1  # decisions of an episode
    return TrainConfig(
        env="memory_chain",
        env_options={"memory_length": MEMORY_LENGTH, "num_bits": 1, "stream_seed": 0},
        memory=recorded_name("memory", memory),
        memory_options=options,
        network=NetworkConfig(
            encoder="mlp",
            encoder_size=64,
            encoder_layers=2,
            projection=projection,
            skip=True,
            head_size=0,
            init="uniform",
        ),
        a2c=A2CConfig(
            num_envs=1,
            rollout_length=length,
            learning_rate=1e-3,
            gamma=0.99,
            lam=1.0,
            entropy_cost=0.0,
            value_cost=0.5,
            max_grad_norm=None,
            whole_episodes=True,
            return_normalisation=True,
            loss_over_time="sum",
        ),
        steps=EPISODES * length,
        log_every=100,
        preset=f"makkink/{name}",
    )


PRESETS: dict[str, TrainConfig] = {
    config.preset: config
    for config in (
        _chain("lstm", PublishedLSTM, _LSTM, "affine"),
        _chain("transformer-xl", PublishedTransformerXL, _WINDOW, "linear"),
        _chain("gtrxl", PublishedGTrXL, _GTRXL, "linear"),
        _chain("rezero", PublishedReZero, _WINDOW, "linear"),
        _chain("universal", PublishedUniversal, _WINDOW | _HALTING, "affine"),
        _chain("integrated", PublishedIntegrated, _INTEGRATED, "affine"),
    )
}
"""Settings of the memory-length experiment at length 20 (section 4.1) by name, as coded."""

EDITIONS = ("published", "repaired", "algorithm-1", "one-repair")
PARTS = ("length", "size", "distributed")

LENGTHS = (*range(1, 11), 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
SIZES = (*range(1, 11), 12, 14, 17, 20, 25, 30, 40)
DISTRIBUTED = (
    *((3, 3), (5, 3), (5, 5), (10, 3), (10, 5), (10, 7), (10, 9)),
    *((30, 3), (30, 5), (30, 7), (30, 9), (30, 17), (30, 25)),
)
"""(memory_length, num_bits)."""
SIZE_LENGTH = 2
"""memory_length of the memory-size experiment. The thesis says 1 (Table B.1), with which nothing
would have to be remembered; its numbers, and bsuite's experiment of that name, use 2."""

PUBLISHED_SEEDS = (4, 5, 10)
REPAIRED_SEEDS = tuple(range(30))
PUBLISHED_EPISODES, REPAIRED_EPISODES = 100, 1000
"""Number of episodes of an evaluation."""

_MIX = "clew.lab.studies.makkink.mixed_recall:MixedRecall"
_PROGRAMS = (10, 17, 30, 50, 70)
"""Lengths up to each of these share a program: letting the shorter ones wait costs less than
compiling a program for each; for the longest it would cost more."""
_WEIGHTS = {
    "lstm": 1.0,
    "transformer-xl": 1.5,
    "gtrxl": 2.0,
    "rezero": 1.5,
    "universal": 4.0,
    "integrated": 12.0,
    "none": 0.3,
}
_REPAIRED_WINDOW = {"inner_residual": False, "gradient": "full"}
_REPAIRED_HALTING = {"coordinates": True, "blend": "mean", "unreached": "copy"}
_REPAIRS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "transformer-xl": _REPAIRED_WINDOW | {"norm": "after"},
    "gtrxl": _REPAIRED_WINDOW | {"gate": "gru", "norm": "before"},
    "rezero": _REPAIRED_WINDOW,
    "universal": _REPAIRED_WINDOW | _REPAIRED_HALTING,
    "integrated": _REPAIRED_WINDOW | _REPAIRED_HALTING | {"gate": "gru", "crossed_states": False},
}
_PARTS_OF_REPAIRS = {
    "gate": ("gate", "crossed_states"),
    "norm": ("norm",),
    "residual": ("inner_residual",),
    "gradient": ("gradient",),
    "halting": ("coordinates", "blend", "unreached"),
}
"""The repairs that can be made separately, and the options that each of them sets."""


def study(part: str = "all", edition: str = "published") -> Study:
    """The study's grid.

    Args:
        part: "length" (Table C.1), "size" (C.2), "distributed" (C.3), or "all".
        edition: "published": the six models as coded and the same network without memory, seeds 4,
            5 and 10, one fixed stream of episodes, an evaluation on its first 100. "repaired":
            gates, gradients, norms and coordinates as meant in the thesis, a plain GRU as an
            additional model (the blocks without attention), fresh episodes and schedules, 30 seeds,
            1,000 evaluation episodes. "algorithm-1": the same, with returns that are not scaled
            within every episode. "one-repair": the published models, and each with one of its
            repairs ("gtrxl-gate"), otherwise as "repaired".

    Raises:
        UserError: for another part or edition.
    """
    require_choice("part", part, (*PARTS, "all"))
    require_choice("edition", edition, EDITIONS)
    parts = PARTS if part == "all" else (part,)
    published = edition == "published"
    wanted = {name: s for p in parts for name, s in settings(p, edition).items()}
    expected = {pair: e for p in parts for pair, e in published_table(p).items()}
    return Study(
        name=grid_name(edition),
        models=models(edition),
        settings=wanted,
        seeds=PUBLISHED_SEEDS if published else REPAIRED_SEEDS,
        episodes=EPISODES,
        evaluation=Evaluation(
            episodes=PUBLISHED_EPISODES if published else REPAIRED_EPISODES, stream=published
        ),
        expected=expected if published else {},
        weights=_WEIGHTS,
        fit_windows=True,
    )


def grid_name(edition: str) -> str:
    """The name of an edition's grid."""
    return f"makkink/{edition}"


def models(edition: str = "published") -> dict[str, TrainConfig]:
    """The agents of an edition by name.

    "none" is the network without its memory: encoder and heads, 4,611 parameters at one bit.
    """
    coded = {name.removeprefix("makkink/"): config for name, config in PRESETS.items()}
    lstm = coded["lstm"]
    none = replace(
        lstm,
        memory="none",
        memory_options={"hidden_size": 64, "num_layers": 2, "init": "uniform"},
        network=replace(lstm.network, encoder="none", projection="none", skip=False),
        preset="",
    )
    if edition == "published":
        return {**coded, "none": none}
    if edition == "one-repair":
        return {
            name: agent
            for model, config in coded.items()
            for name, agent in _one_repair(model, config).items()
        }
    repaired = {
        name: replace(config, memory_options=config.memory_options | _REPAIRS[name], preset="")
        for name, config in coded.items()
    }
    agents = {
        **repaired,
        "gru": replace(lstm, memory=recorded_name("memory", PublishedGRU), preset=""),
        "none": none,
    }
    if edition == "repaired":
        return agents
    return {
        name: config.with_learning(return_normalisation=False) for name, config in agents.items()
    }


def _one_repair(model: str, coded: TrainConfig) -> dict[str, TrainConfig]:
    """An agent as coded, and with each of its repairs alone, by name."""
    repairs = _REPAIRS[model]
    parts = {
        part: {option: repairs[option] for option in options if option in repairs}
        for part, options in _PARTS_OF_REPAIRS.items()
    }
    return {model: coded} | {
        f"{model}-{part}": replace(coded, memory_options=coded.memory_options | repair, preset="")
        for part, repair in parts.items()
        if repair
    }


def settings(part: str, edition: str = "published") -> dict[str, Setting]:
    """The forms of the task in one part, by name: "length-20", "size-5", "distributed-30-7"."""
    if part == "length":
        programs = [next((f"to {m}" for m in _PROGRAMS if n <= m), "") for n in LENGTHS]
        pairs = zip(LENGTHS, programs, strict=True)
        return {f"length-{n}": _chain_setting(n, 1, edition, together) for n, together in pairs}
    if part == "size":
        return {f"size-{k}": _chain_setting(SIZE_LENGTH, k, edition, "sizes") for k in SIZES}
    return {f"distributed-{n}-{k}": _distributed_setting(n, k, edition) for n, k in DISTRIBUTED}


def published_table(part: str) -> Mapping[tuple[str, str], Expected]:
    """Mean and deviation of the return over three seeds, by (model, setting).

    Source: Makkink (2021), Tables C.1 (part "length"), C.2 ("size") and C.3 ("distributed").
    """
    require_choice("part", part, PARTS)
    file = resources.files("clew.lab.studies.makkink") / f"published_{part}.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {
        (row["model"], row["setting"]): Expected(float(row["mean"]), float(row["std"]))
        for row in rows
    }


def _stream(edition: str) -> int | None:
    return 0 if edition == "published" else None


def _chain_setting(length: int, bits: int, edition: str, together: str) -> Setting:
    options = {"memory_length": length, "num_bits": bits, "stream_seed": _stream(edition)}
    floors = memory_chain_floors(**options, episodes=PUBLISHED_EPISODES)
    return Setting("memory_chain", options, length + 1, floors, _MIX, together)


def _distributed_setting(length: int, bits: int, edition: str) -> Setting:
    options = {
        "memory_length": length,
        "num_bits": bits,
        "schedule": "fixed" if edition == "published" else "fresh",
        "stream_seed": _stream(edition),
    }
    floors = distributed_memory_floors(**options, episodes=PUBLISHED_EPISODES)
    return Setting("distributed_memory", options, length, floors, _MIX, f"length {length}")


@dataclass(frozen=True)
class MakkinkOptions(GridOptions):
    """Options of `clew study makkink`."""

    part: str = "all"
    """Which experiments to run: length, size, distributed, or all."""
    edition: str = "published"
    """published: as in the authors' code, on fixed streams of episodes. repaired: as meant in the
    text, on fresh episodes, with controls and more seeds. algorithm-1: the same without scaled
    returns. one-repair: the published agents, each with one of the repairs, on fresh episodes, to
    find which repair makes the difference."""


def grid(options: MakkinkOptions) -> Study:
    """The grid for these options."""
    return options.narrow(study(options.part, options.edition))


STUDY = PublishedStudy(
    MakkinkOptions, grid, presets=PRESETS, pages="clew.lab.studies.makkink.page:page_of"
)
