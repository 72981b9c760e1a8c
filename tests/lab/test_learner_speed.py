"""The learner's speed and memory: the measured data, counts, reports and refusals."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from benchmarks.learner import (
    ACTIONS,
    QUICK,
    SIDE,
    Row,
    config_of,
    document,
    made_up,
    main,
    models,
    table,
)

from clew.lab.bench.timing import Estimate
from clew.lab.costs import multiply_adds
from clew.lab.studies.memory_maze.grid import PRESETS
from clew.memory import make_memory
from clew.report.files import write_measured
from clew.run.build import abstract_agent, make_parts
from clew.run.updates import init_run


@pytest.mark.parametrize("name", models())
def test_what_is_measured_is_the_study_s_agent(name: str) -> None:
    config, preset = config_of(name, 32, {}), PRESETS[f"memory-maze/{name}"]
    make_parts(config)
    assert (config.memory, config.memory_options) == (preset.memory, preset.memory_options)
    assert config.network == preset.network
    assert (config.steps_per_update, config.ppo.minibatches) == (3200, 1)


def test_a_picture_s_multiply_adds_are_counted() -> None:
    """The encoder's by hand: convolutions of 3x3 on 64, 32, 16 and 8 pixels a side, and 512."""
    config = config_of("lstm", 2, {})
    agent = abstract_agent(config, make_parts(config).task)
    picture = jax.ShapeDtypeStruct((SIDE, SIDE, 3), np.uint8)
    whole = multiply_adds(agent, length=10, observation=picture)
    memory = multiply_adds(agent.memory, length=10)
    heads = 768 * (ACTIONS + 1)
    sides = ((64, 3, 16), (32, 16, 32), (16, 32, 32))
    blocks = ((32, 16), (16, 32), (8, 32))
    encoder = sum(9 * n * n * before * after for n, before, after in sides)
    encoder += sum(4 * 9 * n * n * wide * wide for n, wide in blocks) + 8 * 8 * 32 * 512
    assert whole.products // 10 == memory.products // 10 + encoder + heads
    assert not whole.uncounted


def test_noise_is_a_rollout_in_the_middle_of_episodes() -> None:
    config = config_of("gtrxl-64", 2, {"hidden_size": 8, "num_layers": 1, "window": 4})
    parts = make_parts(config)
    agent = eqx.combine(init_run(parts).seed.agent, parts.static)
    acted = made_up(parts, agent)
    seen = acted.experience.observation
    assert seen.shape == (201, 1, 64, 64, 3) and seen.dtype == np.uint8
    assert not acted.experience.start.any() and (acted.experience.discount == 1).all()
    assert len(acted.states) == 2
    empty = make_memory("gtrxl", input_size=512, key=jax.random.key(0), **config.memory_options)
    sizes = [np.shape(leaf) for leaf in jax.tree.leaves(empty.init_state())]
    assert [leaf.shape[1:] for leaf in jax.tree.leaves(acted.memory)] == sizes
    wide = [leaf for leaf in jax.tree.leaves(acted.memory) if leaf.ndim > 2]
    assert wide and all(np.abs(leaf).max(axis=-1).min() > 0 for leaf in wide)  # windows are full


def made_up_row(model: str, faster: float) -> Row:
    """The result of a measurement."""
    rate = Estimate(100 * faster, 90 * faster, 110 * faster, 0.97)
    ratio = Estimate(faster, faster, faster, 0.97)
    share = Estimate(0.1, 0.1, 0.1, 0.97)
    return Row(model, 10, 35_000_000, 800, rate, rate, ratio, share, 3200, 2**21, 2**20)


def test_figures_are_written_as_table_picture_and_json(tmp_path: Path) -> None:
    rows = [made_up_row("gtrxl-256", 1.0), made_up_row("arelit", 1.5)]
    machine: dict[str, Any] = {
        "device": "cpu",
        "cores": 2,
        "product_rate": Estimate(1e11, 9e10, 1e11, 1),
    }
    shown = [cell.text for cell in table(rows, machine).rows[1]]
    assert shown[3:6] == ["150 [135, 165]", "1.50 [1.50, 1.50]", "2 + 1"]
    heads = [table(rows[first:], machine).columns[4].text for first in (0, 1)]
    assert heads == ["relative to gtrxl-256", "relative to arelit"]
    write_measured(document(machine, QUICK, rows), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"memory-maze-learner.{kind}" for kind in ("json", "md", "png")}
    told = json.loads((tmp_path / "memory-maze-learner.json").read_text())
    assert told["rows"][0]["rate"]["middle"] == 100


MISTAKES = {
    "--memories lsmt": "unknown agent of Memory Maze 'lsmt'; did you mean 'lstm'",
    "--sequences 3": "sequences must be even, two of them are a rollout, got 3",
    "--sequences 0": "sequences must be an integer of at least 2, got 0",
}


@pytest.mark.parametrize("args", MISTAKES)
def test_mistakes_are_one_line(args: str, capsys: Any) -> None:
    assert main(args.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and MISTAKES[args] in line


@pytest.mark.slow
def test_the_command_measures(tmp_path: Path, capsys: Any) -> None:
    args = f"--quick --memories none --output {tmp_path}"
    assert main(args.split()) == 0
    assert "do not quote these figures" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "memory-maze-learner.json").read_text())["rows"]
    assert row["rate"]["middle"] > 0 and row["bytes"] >= row["planned_bytes"] > 0
    assert row["times_faster"]["middle"] == 1
