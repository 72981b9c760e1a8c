"""The Memory Maze study: its grid, the thesis's tables, its command, its cells."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest
from gymnasium import spaces

from clew.agents.network import make_agent
from clew.lab.costs import parameters, state_size
from clew.lab.studies.memory_maze import grid as study
from clew.memory import MEMORIES, make_memory, options_of
from clew.names import find
from clew.run.config import TrainConfig
from pixel_maze import TASK
from requested import requested

OF_GRID = {
    "mazes": " ".join(map(str, study.SIZES)),
    "steps": str(study.study().steps),
    "seeds": str(len(study.study().seeds)),
    "sweep.steps": str(study.sweep().steps),
    "sweep.seeds": str(len(study.sweep().seeds)),
    "sweep.last_steps": str(study.sweep().last_steps),
}
SEARCHED = {
    "ppo.learning_rate": study.LEARNING_RATES,
    "ppo.entropy_cost": study.ENTROPY_COSTS,
}
GRID = study.study()
NOT_APPLICABLE = "N/A"


class Entry(NamedTuple):
    """One value of the thesis, and whether the study uses it."""

    table: str
    """The table's or section's number."""
    quantity: str
    model: str
    """An agent's name, or "all"."""
    published: str
    """A number, several between spaces if they were searched or run, or "N/A"."""
    setting: str
    """Where the study has it, see `value_of`; empty if nowhere."""
    follows: str
    """"yes", "swept" (one of the values that were searched) or "no"."""
    why: str


def published_settings() -> list[Entry]:
    """Tables A.3 and A.4 and the other numbers of section 5.2 and appendix A.2."""
    file = Path(study.__file__).with_name("published.csv")
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return [Entry(**row) for row in rows]


def value_of(setting: str, config: TrainConfig) -> str:
    """A setting of a run as the tables write it.

    Args:
        setting: a field of `TrainConfig` by its dotted name, "batch" (steps of a gradient step) or
            "environments per actor". An option that a memory does not have is "N/A", as is one
            that is None.
        config: of the run.
    """
    if setting == "batch":
        value = config.steps_per_update // config.ppo.minibatches
    elif setting == "environments per actor":
        value = config.ppo.num_envs // config.asynchronous.actors
    elif setting.startswith("memory_options."):
        name = setting.partition(".")[2]
        defaults = options_of(find("memory", config.memory, MEMORIES))
        value = config.memory_options.get(name, defaults.get(name))
    else:
        value = config
        for part in setting.split("."):
            value = getattr(value, part)
    return NOT_APPLICABLE if value is None else f"{value:g}"


@pytest.mark.parametrize("entry", published_settings(), ids=lambda e: f"{e.quantity}-{e.model}")
def test_the_study_follows_each_entry_of_the_tables_or_says_that_not(entry: Entry) -> None:
    models = GRID.models if entry.model == "all" else [entry.model]
    if entry.setting in OF_GRID:
        assert (entry.follows, entry.published) == ("yes", OF_GRID[entry.setting])
        return
    for model in models:
        config = GRID.config(model, "9x9", (0,))
        if entry.follows == "yes":
            assert value_of(entry.setting, config) == entry.published
        elif entry.follows == "swept":
            wanted = [f"{x:g}" for x in SEARCHED[entry.setting]]
            assert [f"{float(x):g}" for x in entry.published.split()] == wanted
            assert value_of(entry.setting, config) in wanted
        else:
            assert entry.follows == "no" and entry.why
            if entry.setting == "parameters":
                assert f"{_parameters(config):,} here" in entry.why


def _parameters(config: TrainConfig) -> int:
    return parameters(
        eqx.filter_eval_shape(
            lambda key: make_agent(
                config.memory,
                config.memory_options,
                observation_space=spaces.Box(0, 255, (64, 64, 3), np.uint8),
                action_space=spaces.Discrete(6),
                network=config.network,
                key=key,
            ),
            jax.random.key(0),
        )
    )


def test_the_size_that_is_not_followed_is_that_of_the_state() -> None:
    (entry,) = (e for e in published_settings() if e.published == "1536")
    assert entry.follows == "no" and "1536" not in json.dumps(GRID.models["lstm"].to_json())
    lstm = eqx.filter_eval_shape(
        lambda key: make_memory("lstm", input_size=512, key=key, hidden_size=768), jax.random.key(0)
    )
    assert state_size(lstm).floats == 1536


@pytest.mark.parametrize("environments", (1, 2, 8, 16, 24, 64, 72))
def test_a_gradient_step_reads_no_more_than_a_batch(environments: int) -> None:
    ppo = study.study(environments=environments, actors=1).models["lstm"].ppo
    ppo.validate()
    each = ppo.sequences // ppo.minibatches * ppo.sequence_length
    assert each <= study.BATCH
    assert environments < 16 or each > study.BATCH / 2
    if environments in (16, 64):
        assert each == study.BATCH


def test_the_search_is_that_of_the_thesis() -> None:
    whole = study.sweep()
    assert list(whole.models) == ["lstm", "gtrxl-256", "arelit"]
    assert len(whole.settings) == 9 and all(n.startswith("11x11 ") for n in whole.settings)
    assert (whole.seeds, whole.steps, whole.last_steps) == ((0, 1, 2), 15_000_000, 1_000_000)
    pairs = {
        (config.ppo.learning_rate, config.ppo.entropy_cost)
        for config in (whole.config("lstm", name, (0,)) for name in whole.settings)
    }
    assert pairs == {(r, c) for r in study.LEARNING_RATES for c in study.ENTROPY_COSTS}
    names = {whole.digest("lstm", name) for name in whole.settings}
    assert len(names) == 9


def test_other_rates_reach_the_agents_that_were_not_searched_for() -> None:
    models = study.with_rates(GRID, {"gtrxl-256": (1e-3, 0.03), "arelit": (1e-5, 0.0)}).models
    rates = {n: (c.ppo.learning_rate, c.ppo.entropy_cost) for n, c in models.items()}
    assert {rates[f"gtrxl-{n}"] for n in (64, 128, 256)} == {(1e-3, 0.03)}
    assert rates["arelit"] == rates["none"] == (1e-5, 0.0)
    assert rates["lstm"] == (2.5e-4, 0.003)


def test_the_last_steps_hold_an_episode_of_every_environment() -> None:
    for steps, envs, last in (
        (100_000_000, 64, 1_000_000),
        (300_000, 8, 32_000),
        (10**6, 64, 256_000),
    ):
        whole = replace(study.study(environments=envs), steps=steps)
        assert study.with_last_steps(whole).last_steps == last


def test_options_make_the_study() -> None:
    whole = requested(
        "pramanik --part memory-maze --models lstm,arelit --mazes '9, 15' --seeds 1 --steps 400000 "
        "--actors 2 --environments 8"
    )
    assert list(whole.models) == ["lstm", "arelit"] and list(whole.settings) == ["9x9", "15x15"]
    config = whole.config("arelit", "15x15", (0,))
    assert config.env == "gymnasium:clew/MemoryMaze-15x15-v0" and config.runner == "async"
    assert (config.ppo.num_envs, config.asynchronous.actors) == (8, 2)
    assert (whole.steps, whole.last_steps, whole.whole_machine) == (400_000, 40_000, True)
    other = requested(f"pramanik --part memory-maze --env {TASK} --runner sync")
    assert {n: s.env for n, s in other.settings.items()} == {"pixel_maze-PixelMaze": TASK}
    assert other.models["lstm"].runner == "sync"
