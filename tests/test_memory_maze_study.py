"""The Memory Maze study: its grid, the thesis's tables beside it, its command, its cells."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from gymnasium import spaces

from clew.agents.network import make_agent
from clew.cli import run
from clew.cli.study import StudyCommand, make_study
from clew.costs import parameters
from clew.errors import UserError
from clew.run.config import TrainConfig
from clew.studies import memory_maze as maze
from clew.studies import memory_maze_study as study
from clew.studies.engine import Cell, Evaluation, QuietStudy, Setting, read_results, run_study
from clew.studies.engine.cells import make_cell_job, run_cell
from clew.studies.memory_maze_tables import Entry, published_settings, value_of
from pixel_maze import TASK, pixel_study

OF_GRID = {
    "mazes": " ".join(map(str, maze.SIZES)),
    "steps": str(study.study().steps),
    "seeds": str(len(study.study().seeds)),
    "sweep.steps": str(study.sweep().steps),
    "sweep.seeds": str(len(study.sweep().seeds)),
    "sweep.last_steps": str(study.sweep().last_steps),
}
SEARCHED = {
    "ppo.learning_rate": maze.LEARNING_RATES,
    "ppo.entropy_cost": maze.ENTROPY_COSTS,
}
GRID = study.study()


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


def test_nothing_of_the_agents_is_of_the_size_that_is_not_followed() -> None:
    (entry,) = (e for e in published_settings() if e.published == "1536")
    assert entry.follows == "no" and "1536" not in json.dumps(GRID.models["lstm"].to_json())


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
    assert pairs == {(r, c) for r in maze.LEARNING_RATES for c in maze.ENTROPY_COSTS}
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
    command = StudyCommand(
        "pramanik", "memory-maze", models="lstm,arelit", mazes="9, 15", seeds=1, steps=400_000,
        actors=2, environments=8,
    )  # fmt: skip
    whole = make_study(command)
    assert list(whole.models) == ["lstm", "arelit"] and list(whole.settings) == ["9x9", "15x15"]
    config = whole.config("arelit", "15x15", (0,))
    assert config.env == "gymnasium:clew/MemoryMaze-15x15-v0" and config.runner == "async"
    assert (config.ppo.num_envs, config.asynchronous.actors) == (8, 2)
    assert (whole.steps, whole.last_steps, whole.whole_machine) == (400_000, 40_000, True)
    other = make_study(StudyCommand("pramanik", "memory-maze", env=TASK, runner="sync"))
    assert {n: s.env for n, s in other.settings.items()} == {"pixel_maze-PixelMaze": TASK}
    assert other.models["lstm"].runner == "sync"


MISTAKES = {
    "pramanik --part memory-maze --mazes 10": "side 9, 11, 13, 15, got 10",
    "pramanik --part memory-maze --mazes 9x9": "--mazes must be integers between commas, got '9x9'",
    "pramanik --part memory-maze --mazes 9 --env a:b": "--mazes and --env exclude each other",
    "pramanik --part memory-maze --corridors 120": "--corridors is for --part tmaze",
    "pramanik --part tmaze --rates-from here": "--rates-from is for --part memory-maze",
    "pramanik --part memory-maze --rates-from h --sweep": "exclude each other",
    "pramanik --part memory-maze --rates-from nowhere": "unknown study's folder 'nowhere'",
    "pramanik --part memory-maze --runner asinc": "did you mean 'async'",
    "pramanik --part memory-maze --actors -1": "actors must be an integer of at least 0, got -1",
    "pramanik --part memory-maze --models lsmt": "did you mean 'lstm'",
    "pramanik --part memory-maze --episodes 5": "a resumable study needs its budget as steps",
    "pramanik --part memory-maze --ray auto": "those of memory-maze are resumed from this disk",
    "pramanik --part memory-maze --env pixel_maze:Maze --models lstm": "PixelMaze",
    f"pramanik --part memory-maze --env {TASK} --actors 5": "got 5 actors for 64 environments",
}


@pytest.mark.parametrize("args", MISTAKES)
def test_mistakes_are_one_line(args: str, capsys: Any) -> None:
    assert run(["study", *args.split(), "--list"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith("error: ") and MISTAKES[args] in line


def test_what_runs_alone_must_be_resumable() -> None:
    for changes in (
        {},
        {"whole_machine": False, "settings": {"x": Setting(TASK, ppo={"lam": 1.0})}},
    ):
        with pytest.raises(UserError, match="need a resumable study"):
            pixel_study(evaluation=Evaluation(), resumable=False, **changes)


class Killed(Exception):
    """Stands for a kill: nothing after it is done."""


def kill_at_half(share: float) -> None:
    """A listener that kills the training when half of it is behind."""
    if share >= 0.5:
        raise Killed


def in_turns(**changes: Any) -> Any:
    """The tiny study without processes."""
    whole = pixel_study(**changes)
    return replace(whole, models={"none": replace(whole.models["none"], runner="sync")})


def test_a_cell_of_an_environment_of_others_is_a_run(tmp_path: Path) -> None:
    cell, whole = Cell("none", "tiny", 0), in_turns()
    job = make_cell_job(whole, cell, tmp_path)
    with pytest.raises(Killed):
        run_cell(job, kill_at_half)
    shares: list[float] = []
    (row,) = run_cell(job, shares.append)
    assert shares[0] > 0.4  # it did not begin anew
    assert (row["steps"], row["episodes"], row["standard_error"]) == (192, 0, None)
    assert row["curve"]["steps"] == [32, 96, 128, 192]
    assert row["mean"] == row["last"]["return"] and row["last"]["steps"] == 64
    assert row["evaluation"]["means"] is None
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    measured = replace(whole, evaluation=Evaluation(episodes=3))
    task = replace(whole.settings["tiny"], further={"longer": {"length": 9}})
    measured = replace(measured, settings={"tiny": task})
    (row,) = run_cell(make_cell_job(measured, cell, tmp_path))
    assert row["episodes"] == 3 and row["evaluation"]["means"]["length"] == 6
    assert row["further"]["longer"]["length"] == 9


class Watch(QuietStudy):
    """Kills whoever works, once, when half of a training is behind."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        self.told: list[str] = []
        self.after: list[float] = []

    def message(self, text: str) -> None:
        """Keeps it."""
        self.told.append(text)

    def report(self, standing: Any) -> None:
        """Kills, and keeps how far the training is from then on."""
        shares = list(standing.working.values())
        if self.killed:
            self.after += shares
        elif shares and max(shares) > 0.5:
            self.killed += workers_of(os.getpid())
            for process in self.killed:
                os.kill(process, signal.SIGKILL)


def workers_of(parent: int) -> list[int]:
    """The workers of a study's process."""
    found = []
    for process, above, command in processes():
        if above == parent and "engine.worker" in command:
            found.append(process)
    return found


def processes() -> Iterator[tuple[int, int, str]]:
    """Number, parent and command line of every process that is there."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(") ")[2].split()[1])
            yield int(path.name), parent, (path / "cmdline").read_text()
        except OSError:
            continue


@pytest.mark.slow
def test_a_killed_worker_with_actors_loses_and_repeats_nothing(tmp_path: Path) -> None:
    whole = pixel_study(steps=60_000)
    watch = Watch()
    result = run_study(whole, tmp_path, progress=watch)
    assert len(watch.killed) == 1 and ["trying that again" in t for t in watch.told] == [True]
    assert max(watch.after) > 0.5 and not result.failures
    rows = read_results(tmp_path)
    assert sorted(row["seed"] for row in rows) == [0, 1]
    assert all(row["steps"] == 60_000 for row in rows)
    assert run_study(whole, tmp_path, progress=QuietStudy()).rows == result.rows


@pytest.mark.slow
def test_a_study_that_is_told_to_stop_goes_on(tmp_path: Path) -> None:
    script = [sys.executable, str(Path(__file__).with_name("pixel_maze.py"))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen([*script, str(tmp_path), "60000"], env=environment)
    while len(list(tmp_path.glob("runs/*/checkpoints/update-*.clew"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    crew = workers_of(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    deadline = time.monotonic() + 20
    while (left := [p for p, above, _ in processes() if p in crew or above in crew]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert crew and not left
    finished = len(read_results(tmp_path))
    result = run_study(pixel_study(steps=60_000), tmp_path, progress=QuietStudy())
    assert finished < 2 == len(result.rows) == len(read_results(tmp_path))
