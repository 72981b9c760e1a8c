"""Sweeps: their space, their trials through kills, equal budgets, and the best on fresh seeds."""

import contextlib
import gc
import json
import math
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clew
from clew.cli import run
from clew.errors import UserError
from clew.lab.grid import Event, Pack, QuietStudy, read_results
from clew.lab.grid.jobs import make_job, run_job
from clew.lab.grid.study import Setting
from clew.lab.sweep import storage
from clew.lab.sweep import sweep as sweep_module
from clew.lab.sweep.page import _scatter, outcome, write_page
from clew.lab.sweep.space import Range, Vary, lane_names, with_settings
from clew.lab.sweep.storage import DATABASE, Batch, SweepTrial, TrialDatabase, open_storage
from clew.lab.sweep.sweep import (
    DECLARATION,
    FINAL,
    TRIALS,
    Sweep,
    SweepResult,
    Winner,
    _winner,
    run_sweep,
)
from clew.lab.sweep.trials import TASK, Trained
from clew.report.figures import new_figure
from clew.run.folder import locked
from clew.stats import bootstrap_interval
from faults.sweeping import RATES, SIZES, Killed, Pretended, small_sweep
from slow_cases import fast_only
from small_cells import small_cells


def go_on(sweep: Sweep, path: Path, left: float = math.inf) -> Any:
    """A process of a sweep, killed after this many packs; the result, and what it trained."""
    workers = Pretended(left)
    try:
        return run_sweep(sweep, path, workers=workers, progress=QuietStudy()), workers.taken
    except Killed:
        return None, workers.taken


def trained(path: Path) -> list[tuple[str, str, int]]:
    """Every finished cell of the search, in all batches' folders."""
    return [
        (row["model"], row["setting"], row["seed"])
        for place in sorted((path / TRIALS).iterdir())
        for row in read_results(place)
    ]


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill restores nothing, and a trial counts as lost after two seconds."""
    monkeypatch.setattr(TrialDatabase, "requeue", lambda search, attempts: None)
    for module in (storage, sweep_module):
        monkeypatch.setattr(module, "GRACE", 1)
        monkeypatch.setattr(module, "HEARTBEAT", 1)


@pytest.mark.parametrize(
    ("how", "vary"),
    [
        pytest.param("stopped", SIZES, id="stopped-runs", marks=pytest.mark.slow),
        pytest.param("stopped", RATES, id="stopped-lanes", marks=pytest.mark.slow),
        pytest.param("killed", SIZES, id="killed-runs"),
        pytest.param("killed", RATES, id="killed-lanes", marks=pytest.mark.slow),
    ],
)
def test_a_killed_sweep_loses_nothing_and_tries_nothing_twice(
    vary: Vary, how: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if how == "killed":
        request.getfixturevalue("kills")
    sweep = small_sweep(vary, at_once=3)
    killed = [go_on(sweep, tmp_path, left)[0] for left in (1, 0, 2)]
    assert killed == [None, None, None]
    result, _ = go_on(sweep, tmp_path)
    tried = result.tried["gru"]
    assert [trial.number for trial in tried] == list(range(6))
    assert {trial.state for trial in tried} == {"complete"}
    assert len({json.dumps(trial.values) for trial in tried}) == 6
    cells = trained(tmp_path)
    assert len(cells) == len(set(cells)) == 12
    assert tried[0].values == {name: value_of_default(name) for name in vary}
    again, taken = go_on(sweep, tmp_path)
    assert again == result and not taken
    more, _ = go_on(replace(sweep, trials=8), tmp_path)
    assert more.tried["gru"][:6] == tried and len(more.tried["gru"]) == 8


def value_of_default(name: str) -> float:
    """The value that a trial of the defaults has."""
    return {"a2c.rollout_length": 8, "a2c.learning_rate": 1e-3, "a2c.entropy_cost": 0.01}[name]


@pytest.mark.slow
def test_the_best_is_trained_with_seeds_that_no_trial_had(tmp_path: Path) -> None:
    """Its page compares them with the default, not the search's own maximum."""
    sweep = small_sweep()
    result, taken = go_on(sweep, tmp_path)
    (winner,) = result.winners.values()
    best = max(result.tried["gru"], key=lambda trial: trial.score)
    assert winner.trial == best and winner.values == best.values
    assert {seed for pack in taken for seed in pack.seeds if "-best-" in pack.model} == {
        2,
        3,
        4,
    }
    first = [pack for pack in taken if pack.model == "gru-0" or "trial-0" in pack.settings]
    assert {seed for pack in first for seed in pack.seeds} == {0, 1}
    shift = abs(math.log10(best.values["a2c.learning_rate"]) + 3)
    np.testing.assert_allclose(winner.best.scores, [s / 100 - shift for s in (2, 3, 4)], atol=1e-9)
    np.testing.assert_allclose(winner.default.scores, [0.02, 0.03, 0.04], atol=1e-9)
    report = write_page(sweep, result)
    text = report.markdown.read_text()
    usual = str(format(bootstrap_interval(winner.default.scores), ".4g"))
    beside = usual.replace("[", "\\[").replace("]", "\\]")
    assert f"| gru | default | {beside} |" in text and "seeds 2 to 4" in text
    assert (tmp_path / "tables" / "gru-trials.csv").read_text().count("complete") == 6


@pytest.mark.slow
def test_every_memory_has_as_many_trials(tmp_path: Path) -> None:
    vary = SIZES | {"memory_options.num_layers": (1, 2)}
    result, _ = go_on(small_sweep(vary, memories=("gru", "lstm")), tmp_path)
    assert {memory: len(tried) for memory, tried in result.tried.items()} == {"gru": 6, "lstm": 6}
    assert result.winners.keys() == {"gru", "lstm"}
    assert "memory_options.num_layers" in result.tried["lstm"][0].values


def test_a_memory_of_ones_own_is_called_by_its_label() -> None:
    for memories in (["mine=own_lru:LRU"], ["gru", "mine=own_lru:LRU"]):
        configs = small_sweep(SIZES, memories=tuple(memories)).configs()
        assert configs["mine"].memory == "own_lru:LRU" and len(configs) == len(memories)


@pytest.mark.slow
def test_processes_share_a_sweep(
    tmp_path: Path, kills: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process leaves alone what another has started, and takes it over once that is gone."""
    # However long a busy machine delays a heartbeat, it does not count as lost.
    monkeypatch.setattr(storage, "GRACE", 600)
    sweep = small_sweep(at_once=2)
    go_on(sweep, tmp_path, left=1)
    with living(tmp_path):
        result, taken = go_on(sweep, tmp_path)
        assert result.winners == {}
        states = [trial.state for trial in result.tried["gru"]]
        assert states == ["running"] * 2 + ["complete"] * 4
        assert not any(pack.model in ("gru-0", "gru-1") for pack in taken)
    monkeypatch.setattr(storage, "GRACE", 1)
    result, taken = go_on(sweep, tmp_path)
    assert {name for pack in taken for name in (pack.model, *pack.settings)} & {"gru-1", "trial-1"}
    assert len(result.tried["gru"]) == 6 and result.winners
    cells = trained(tmp_path)
    assert len(cells) == len(set(cells)) == 12


def test_the_best_are_left_to_the_process_that_trains_them(tmp_path: Path) -> None:
    """Both have seen that the search is over; the second used to end with an error."""
    sweep = small_sweep(trials=2)
    (tmp_path / FINAL).mkdir()
    with locked(tmp_path / FINAL):
        result, _ = go_on(sweep, tmp_path)
    assert len(result.tried["gru"]) == 2 and result.winners == {}
    assert go_on(sweep, tmp_path)[0].winners


@contextlib.contextmanager
def living(path: Path) -> Iterator[None]:
    """Heartbeats of the first two trials, as if their process were alive."""
    with open_storage(path) as storage:
        search = TrialDatabase(storage, "gru", small_sweep().config, {}, 6)
        with search.leased([Batch(0, {}, {0: 0, 1: 1})]):
            yield


def test_it_leaves_no_connection_to_its_database_open(tmp_path: Path) -> None:
    """Python 3.13 warns of one whenever it finds it."""
    go_on(small_sweep(), tmp_path)
    for each in [one for one in gc.get_objects() if isinstance(one, sqlite3.Connection)]:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            each.execute("SELECT 1")


def test_what_a_lost_machine_has_begun_is_taken_by_another(tmp_path: Path, kills: None) -> None:
    """The machines share a database, but no disk."""
    sweep, url = small_sweep(at_once=3), f"sqlite:///{tmp_path / 'shared.db'}"
    lost, other = (tmp_path / name for name in ("lost", "other"))
    with pytest.raises(Killed):
        run_sweep(sweep, lost, storage=url, workers=Pretended(1), progress=QuietStudy())
    result = run_sweep(sweep, other, storage=url, workers=Pretended(), progress=QuietStudy())
    assert [trial.number for trial in result.tried["gru"]] == list(range(6))
    assert {trial.state for trial in result.tried["gru"]} == {"complete"} and result.winners


@pytest.mark.parametrize(
    ("name", "choices", "index", "said"),
    fast_only(
        [
            ("memory", ("mine:Average", "gru"), 0, "value of memory, which does not vary"),
            ("a2c.rollout_length", (4, 8, 99), 2, "does not contain 99"),
            ("a2c.rollout_length", (4, 8, 32, 16), 0, "drawn from another space"),
        ],
        ("memory", ("mine:Average", "gru"), 0, "value of memory, which does not vary"),
    ),
)
def test_the_database_brings_no_settings_of_its_own(
    name: str, choices: tuple, index: int, said: str, tmp_path: Path
) -> None:
    """Values that somebody wrote into it are neither imported nor trained."""
    sweep = small_sweep()
    result, _ = go_on(sweep, tmp_path)
    best = max(result.tried["gru"], key=lambda trial: trial.score).number + 1
    written = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": choices}})
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
        database.execute("DELETE FROM trial_params WHERE trial_id = ?", (best,))
        database.execute(
            "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "
            "VALUES (?, ?, ?, ?)",
            (best, name, index, written),
        )
    shutil.rmtree(tmp_path / "final")
    with pytest.raises(UserError, match=said):
        go_on(sweep, tmp_path)


@pytest.mark.parametrize(
    "written", fast_only(["{", '{"name": "Unknown", "attributes": {}}', "[]"], "[]")
)
def test_a_damaged_database_is_one_line(written: str, tmp_path: Path) -> None:
    go_on(small_sweep(), tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
        database.execute("UPDATE trial_params SET distribution_json = ?", (written,))
    with pytest.raises(UserError, match="cannot read the trials of gru: "):
        go_on(small_sweep(), tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    fast_only(
        [
            (
                "DELETE FROM trial_params WHERE trial_id = 2",
                "trial 1 of gru .* has no value of a2c",
            ),
            ("UPDATE study_directions SET direction = 'MINIMIZE'", "does not maximize the score"),
            ("DELETE FROM study_directions", "does not maximize the score"),
        ],
        ("UPDATE study_directions SET direction = 'MINIMIZE'", "does not maximize the score"),
    ),
)
def test_a_changed_database_is_one_line(change: str, said: str, tmp_path: Path) -> None:
    """The drawn values are not the defaults, and the larger score is the better one."""
    go_on(small_sweep(trials=3), tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
        database.execute(change)
    with pytest.raises(UserError, match=said):
        go_on(small_sweep(), tmp_path)


def test_a_database_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Whoever made the link chose the file, which need not exist yet."""
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / DATABASE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"cannot open .*sweep.db: it is a link, not a file"):
        go_on(small_sweep(), tmp_path / "sweep")
    assert not (tmp_path / "elsewhere").exists()


def test_a_row_that_does_not_say_what_it_is_of_is_one_line(tmp_path: Path) -> None:
    go_on(small_sweep(), tmp_path)
    rows = tmp_path / "final" / "results.jsonl"
    rows.write_text(json.dumps({"setting": "task", "seed": 0}) + "\n")
    with pytest.raises(UserError, match="results.jsonl: line 1 is not a row .* it has no 'model'"):
        go_on(small_sweep(), tmp_path)


def test_a_declaration_without_settings_is_one_line(tmp_path: Path) -> None:
    go_on(small_sweep(), tmp_path)
    (tmp_path / DECLARATION).write_text("{}")
    with pytest.raises(UserError, match="setting"):
        go_on(small_sweep(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("vary", ["divisor", "learning_rate"])
def test_settings_of_a_learner_of_your_own_vary(vary: str, tmp_path: Path) -> None:
    """Those that a program takes as numbers are its lanes; no line of the lab is needed."""
    own = {"num_envs": 2, "rollout_length": 8}
    changes: dict[str, Any] = {"algorithm": "own_parts:Halved", "learner_options": own}
    config = replace(small_sweep().config, a2c=clew.A2CConfig(), **changes)
    space: Vary = {f"learner_options.{vary}": Range(1e-3, 1, log=True)}
    sweep = small_sweep(space, config=config, trials=2, fresh_seeds=1, episodes=2)
    result = run_sweep(sweep, tmp_path, workers=InProcess(), progress=QuietStudy())
    assert {trial.state for trial in result.tried["gru"]} == {"complete"} and result.winners
    assert {row[:2] for row in trained(tmp_path)} == {("gru", "trial-0"), ("gru", "trial-1")}


@pytest.mark.parametrize(
    "setting, lanes",
    [
        ("sac.initial_temperature", False),
        ("r2d2.evaluation_epsilon", False),
        ("pqn.epsilon_end", False),
        ("pqn.epsilon_start", True),
        ("sac.polyak", True),
    ],
)
def test_what_heads_are_made_with_is_no_lane(setting: str, lanes: bool) -> None:
    """Agents that train side by side start with heads that are built alike."""
    config = clew.TrainConfig(algorithm=setting.partition(".")[0])
    assert bool(lane_names(config, {setting: Range(0.1, 0.5)})) == lanes


class InProcess:
    """A worker in this process."""

    size, saves = 1, True

    def submit(self, pack: Pack, job: Any) -> None:
        """Runs it."""
        self.event = Event("rows", pack, "here", rows=tuple(run_job(job)))

    def next(self, timeout: float) -> Event:
        """Returns its result."""
        return self.event

    def close(self) -> None:
        """Does nothing."""


@pytest.mark.slow
def test_settings_that_exclude_each_other_do_not_count(tmp_path: Path) -> None:
    vary = {"a2c.minibatches": (1, 2, 3), "a2c.learning_rate": RATES["a2c.learning_rate"]}
    result, _ = go_on(small_sweep(vary, at_once=1), tmp_path)
    tried = result.tried["gru"]
    refused = [trial for trial in tried if trial.state == "refused"]
    assert len(tried) - len(refused) == 6
    assert all("minibatches must divide num_envs" in trial.error for trial in refused)
    impossible = {"a2c.minibatches": (3, 5)}
    with pytest.raises(UserError, match="exclude each other; the latest: minibatches must"):
        go_on(small_sweep(impossible), tmp_path / "none")


def test_what_is_tried_first_is_what_is_gone_on_with(tmp_path: Path) -> None:
    """An integer of a range is the same before and after a kill."""
    vary = {"a2c.entropy_cost": Range(0, 1), "a2c.num_envs": Range(1, 4)}
    sweep = small_sweep(vary, first=({"a2c.entropy_cost": 0, "a2c.num_envs": 4},), trials=2)
    workers = Pretended(0)
    with pytest.raises(Killed):
        run_sweep(sweep, tmp_path, workers=workers, progress=QuietStudy())
    asked = sorted(json.dumps(job) for _, job in workers.submitted)
    again = Pretended(0)
    with pytest.raises(Killed):
        run_sweep(sweep, tmp_path, workers=again, progress=QuietStudy())
    assert asked == sorted(json.dumps(job) for _, job in again.submitted) != []


@pytest.mark.slow
def test_a_folder_has_one_sweep(tmp_path: Path) -> None:
    """A version with more settings continues it."""
    sweep = small_sweep()
    go_on(sweep, tmp_path, left=0)
    longer = replace(sweep, config=replace(sweep.config, steps=640))
    for other, named in ((replace(sweep, vary=RATES), "vary: "), (longer, "steps: 320, now 640")):
        with pytest.raises(UserError, match=f"holds a sweep with other settings .{named}.*--name"):
            go_on(other, tmp_path)
    declared = json.loads((tmp_path / DECLARATION).read_text())
    del declared["config"]["wrappers"]["previous"]
    (tmp_path / DECLARATION).write_text(json.dumps(declared))
    assert go_on(sweep, tmp_path)[0].winners


SWEEP = "sweep --env tmaze --memory gru --vary"
MISTAKES = {
    "sweep": "what should vary? For example --vary",
    f"{SWEEP} a2c.learning_rat=1..2": "'a2c.learning_rat'; did you mean 'a2c.learning_rate'",
    f"{SWEEP} a2c.ent_coef=0..1": "clew calls it a2c.entropy_cost",
    f"{SWEEP} batch_size=8,16": "a2c.minibatches (how many there are, not their size)",
    f"{SWEEP} a2c.learning_rate": "--vary needs SETTING=..., got 'a2c.learning_rate'",
    f"{SWEEP} a2c.learning_rate=1e-3": "must be LOW..HIGH, log:LOW..HIGH or values separated",
    f"{SWEEP} a2c.learning_rate=a..b": "must be LOW..HIGH in numbers, got 'a..b'",
    f"{SWEEP} a2c.learning_rate=2..1": "from a smaller to a larger number, got 2..1",
    f"{SWEEP} a2c.learning_rate=log:0..1": "must start above 0",
    f"{SWEEP} a2c.num_envs=1..2.5": "must be a range of integers, got 1..2.5",
    f"{SWEEP} a2c.learning_rate=[1e-4,1e-2]": "as in --vary a2c.learning_rate=1e-4,1e-2, got '[",
    f"{SWEEP} a2c.learning_rate=slow,0.1": "cannot be 'slow': give values like 0.001",
    f"{SWEEP} a2c.num_envs=8,9.5": "a2c.num_envs cannot be 9.5: give values like 8",
    f"{SWEEP} network.critic_only=a,b": """cannot be 'a': give values like ["a"]""",
    f"{SWEEP} a2c.schedule=1..2": "a2c.schedule is not a number: give its values",
    f"{SWEEP} a2c.num_envs=8,8": "a2c.num_envs has a value twice",
    f"{SWEEP} ppo.clip_ratio=0.1..0.3": "tmaze is learned by a2c here; --algorithm ppo",
    f"{SWEEP} memory_options.hidden=8,16": "did you mean 'memory_options.hidden_size'",
    f"{SWEEP} steps=10,20": "unknown setting to vary 'steps'",
    f"{SWEEP} a2c.num_envs=4,8 --trials 0": "trials must be an integer of at least 1",
    f"{SWEEP} a2c.num_envs=4,8 --score sucess": "did you mean 'success'",
    f"{SWEEP} a2c.num_envs=4,8 --first a2c.gamma=0.9": "but does not vary",
    f"{SWEEP} a2c.num_envs=4,8 --first a2c.num_envs=0": "num_envs must be an integer of at least 1",
    f"{SWEEP} a2c.num_envs=4,8 --ray auto --workers 2": "--ray and --workers exclude each other",
    f"{SWEEP} env_options.corridor_length=3,4": "a sweep compares agents on one task: env_options.",
    f"{SWEEP} a2c.num_envs=4,8 --memories lstm none": "leave out --memory",
    "sweep --vary a2c.num_envs=4,8 --memories gru,lstm": "got gru,lstm; spaces separate them",
    f"{SWEEP} a2c.num_envs=4,8 --trust": "--trust is for the run of --start-from",
    f"{SWEEP} a2c.num_envs=4,8 --workers -1": "workers must be an integer of at least 0",
}


@pytest.mark.parametrize("words", [[], ["--trust"]])
def test_the_code_of_the_run_to_start_from_needs_consent(words, monkeypatch, capsys) -> None:
    asked: list[bool] = []

    def read(parts: object, *, trust: bool) -> None:
        asked.append(trust)
        raise UserError("read")

    monkeypatch.setattr(sweep_module, "read_shared_start", read)
    assert run([*f"{SWEEP} a2c.num_envs=4,8 --start-from other".split(), *words]) == 2
    assert asked == [bool(words)] and capsys.readouterr().err == "error: read\n"


@pytest.mark.parametrize("words", MISTAKES)
def test_a_wrong_sweep_is_one_line(words: str, capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words.split()) == 2
    error = capsys.readouterr().err
    assert MISTAKES[words] in error and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("config", "tmaze"), ("vary", [1]), ("memories", "gru"), ("score", 3)]
)
def test_a_sweep_of_other_types_is_refused(name: str, value: Any) -> None:
    given: dict[str, Any] = {"config": clew.TrainConfig(), "vary": SIZES, name: value}
    with pytest.raises(UserError, match=f"{name} must be .*, got {re.escape(repr(value))}"):
        Sweep(**given)


def test_without_optuna_the_extra_is_named(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert run([*SWEEP.split(), "a2c.num_envs=4,8"]) == 2
    assert "clew sweep needs Optuna: pip install 'clew[sweep]'" in capsys.readouterr().err


@pytest.mark.slow
def test_lanes_of_ppo_are_what_training_alone_gives(tmp_path: Path) -> None:
    """PPO's numbers become arguments of one program."""
    base = small_cells()
    agent = with_settings(
        base.models["gru"],
        {"algorithm": "ppo", "ppo.num_envs": 2, "ppo.rollout_length": 8, "ppo.sequence_length": 8}
        | {"ppo.minibatches": 2},
    )
    own = ({"learning_rate": 1e-2, "clip_ratio": 0.1}, {"learning_rate": 1e-3, "clip_ratio": 0.3})
    corridor = {"corridor_length": 3, "time_limit": 40}
    settings = {
        f"s{i}": Setting("tmaze", corridor, learning=values) for i, values in enumerate(own)
    }
    study = replace(base, models={"gru": agent}, settings=settings, resumable=False, steps=320)
    together = run_job(make_job(study, Pack("gru", ("s0", "s1"), (3,)), tmp_path))
    (alone,) = run_job(make_job(study, Pack("gru", ("s1",), (3,)), tmp_path / "alone"))
    curves = [np.array(row["curve"]["success"], float) for row in (*together, alone)]
    np.testing.assert_allclose(curves[1], curves[2], rtol=1e-5)
    assert not np.array_equal(curves[0], curves[1])


COMMAND = (
    "sweep --env tmaze --env-options corridor_length=3 time_limit=9 --memory gru --memory-options "
    "hidden_size=4 --network.head-size 4 --steps 8000 --seeds 2 --trials 6 --at-once 3 --workers 2 "
    "--fresh-seeds 2 --episodes 4 --name killed --vary a2c.learning_rate=log:1e-4..1e-1 "
    "a2c.entropy_cost=0..0.1 --json"
)


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on(tmp_path: Path) -> None:
    """By SIGKILL, while its first trials train; its winner is compared with the default."""
    command = [sys.executable, "-m", "clew", *COMMAND.split()]
    first = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True
    )
    folder = tmp_path / "runs" / "killed"
    while not list(folder.glob("trials/gru-0/results.jsonl")) and first.poll() is None:
        time.sleep(0.05)
    time.sleep(1.0)
    os.killpg(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL and (folder / DATABASE).exists()
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    found = json.loads(said.stdout)
    tried = found["trials"]["gru"]
    assert [trial["number"] for trial in tried] == list(range(6))
    assert all(trial["state"] == "complete" for trial in tried)
    cells = trained(folder)
    assert len(cells) == len(set(cells)) == 12
    winner, best = found["winners"]["gru"], max(tried, key=lambda trial: trial["score"])
    assert len(winner["best"]["scores"]) == len(winner["default"]["scores"]) == 2
    assert winner["values"] == best["values"]
    runs = sorted(path.name for path in (folder / "final" / "runs").iterdir())
    models = (f"gru-best-{best['number']}", "gru-default")
    assert runs == [f"{model}-task-seed-{n}" for model in models for n in (2, 3)]


def test_a_fresh_seed_without_a_score_is_counted() -> None:
    """The other seeds' greedy scores stay beside their own."""

    def row(which: str, seed: int) -> dict[str, Any]:
        none = which == "best" and seed == 0
        curve = {"steps": [10], "episodes": [int(not none)], "return": [None if none else seed]}
        name = {"best": "gru-best-0", "default": "gru-default"}[which]
        model = {"model": name, "setting": TASK, "seed": seed}
        return model | {"curve": curve, "mean": 10.0 + seed}

    rows = [row(which, seed) for which in ("best", "default") for seed in range(3)]
    trial = SweepTrial(0, {}, 1.0, "complete")
    winner = _winner("gru", trial, rows, "return")
    assert winner.best.scores == [1, 2] and winner.by_seed["best"] == [None, 1, 2]
    table = outcome(SweepResult(Path(), "return", {}, {"gru": winner}))
    assert "1.5 [1, 2], 2 of 3 seeds" in str(table.rows[0])
    pairs = [(r["index"], r["score"], r["greedy"]) for r in table.records[:3]]
    assert pairs == [(0, None, 10.0), (1, 1.0, 11.0), (2, 2.0, 12.0)]


def test_seeds_that_agree_have_a_gain_without_an_interval() -> None:
    trial = SweepTrial(0, {}, 1.0, "complete")
    both = Trained([1.0, 1.0])
    agreed = {which: [1.0, 1.0] for which in ("best", "default")}
    winner = Winner(trial, {}, both, both, agreed, {**agreed})
    table = outcome(SweepResult(Path(), "return", {}, {"gru": winner}))
    assert [cell.text for cell in table.rows[0][4:]] == ["+0", "0.50 [0.50, 0.50]"]


def test_values_are_drawn_in_their_order() -> None:
    """Whichever was tried first."""
    tried = [SweepTrial(n, {"x": v}, float(v), "complete") for n, v in enumerate((128, 32, 32))]
    axes = new_figure(3.0, 2.0).subplots()
    _scatter(axes, "x", (32, 64, 128), tried, "return")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["32", "64", "128"]
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [2, 0, 0])
