"""Evaluation during training: its episodes and results, and that training is unaffected."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import clew
from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.cli.live import summary_line
from clew.errors import UserError
from clew.interact import compiled_task
from clew.lab.grid import Setting, Study
from clew.lab.sweep.sweep import Sweep
from clew.run import evaluation, metrics
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.best import Best, Score
from clew.run.build import make_parts
from clew.run.evaluation import OWN_KEYS, is_due
from clew.run.load import load_run
from clew.run.names import EVALUATED
from clew.run.progress import Lines, Report
from clew.run.train import RunResult
from clew.run.updates import init_run
from slow_cases import fast_only
from small_run import (
    STEPS_PER_UPDATE,
    Watch,
    assert_same_run,
    last_state,
    replaying_config,
    small_config,
    untimed,
)

UPDATES = 64
STEPS = UPDATES * STEPS_PER_UPDATE
EVERY = 3_000
EVALUATION = {"evaluate_every": EVERY, "evaluate_episodes": 10}
POLE = {
    "env": "gymnasium:CartPole-v1",
    "memory": "none",
    "algorithm": "ppo",
    "ppo": clew.PPOConfig(num_envs=4, rollout_length=64, minibatches=1, epochs=1),
    "wrappers": clew.WrapperConfig(normalise_observations=True, normalise_rewards=True),
    "network": clew.NetworkConfig(head_size=8),
    "steps": 4 * 64 * 4,
    "seeds": 2,
    "log_every": 1,
}


def short_config(folder: Path, name: str = "run", **changes: Any) -> clew.TrainConfig:
    return small_config(folder, name, **{"steps": STEPS, **changes})


def pole_config(folder: Path, **changes: Any) -> clew.TrainConfig:
    return clew.TrainConfig(**{**POLE, "run_dir": str(folder), **changes})


def without_evaluations(path: Path) -> list[dict[str, Any]]:
    """The rows of a run, without the results of evaluations and the learner's waiting time."""
    other = EVALUATED, "learner_wait"
    return [
        {name: x for name, x in row.items() if not name.startswith(other)} for row in untimed(path)
    ]


def assert_same_training(path: Path, other: Path) -> None:
    """Checks that two runs ended with the same bits and logged the same about their training."""
    leaves, expected = last_state(path), last_state(other)
    assert leaves.keys() == expected.keys()
    assert not [n for n in leaves if leaves[n].tobytes() != expected[n].tobytes()]
    assert without_evaluations(path) == without_evaluations(other)


def evaluated(path: Path, metric: str = "return") -> dict[int, list[float | None]]:
    """The results of its seeds' agents, by the steps of each evaluation."""
    found = {row["steps"]: row.get(EVALUATED + metric) for row in clew.read_metrics(path)}
    return {steps: values for steps, values in found.items() if values is not None}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("evaluated")
    return clew.train(short_config(folder, **EVALUATION), progress=Watch())


def test_training_is_bit_for_bit_what_it_is_without(trained: RunResult, tmp_path: Path) -> None:
    other = clew.train(short_config(tmp_path), progress=Watch()).path
    assert_same_training(trained.path, other)
    assert evaluated(other) == {}


def test_training_in_gymnasium_environments_is_too(tmp_path: Path) -> None:
    """With wrappers that learn; the last agents' results are the same in such episodes."""
    config = pole_config(tmp_path, evaluate_every=512, evaluate_episodes=5)
    path, other = (
        clew.train(replace(config, name=name, evaluate_every=every), progress=Watch()).path
        for name, every in (("with", 512), ("without", 0))
    )
    assert_same_training(path, other)
    assert [*evaluated(path)] == [512, 1024]
    assert played_again(path, update=4) == evaluated(path)[1024]


def played_again(path: Path, update: int) -> list[float]:
    """The returns of a run's newest agents in the episodes of their evaluation."""
    run = load_run(path)
    play = run.task.evaluator(run.static, greedy=True, max_steps=1000)
    found = []
    for index in range(run.config.seeds):
        agent = pick((run.params, run.statistics), index)
        entropy = run.config.seed + index, OWN_KEYS, update
        found.append(play(*agent, run.config.evaluate_episodes, entropy)["return"].mean())
    return [float(f"{value:.6g}") for value in found]


def pick(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def test_rows_have_it_at_the_first_row_after_each_so_many_steps(trained: RunResult) -> None:
    """It has every metric of `clew.evaluate`, on fresh episodes, different ones each time."""
    row = 8 * STEPS_PER_UPDATE
    expected = [math.ceil(n * EVERY / row) * row for n in range(1, STEPS // EVERY + 1)]
    assert [*evaluated(trained.path)] == expected
    last = [row for row in clew.read_metrics(trained.path) if f"{EVALUATED}return" in row][-1]
    names = {n.removeprefix(EVALUATED) for n in last if n.startswith(EVALUATED)}
    assert names == clew.evaluate(trained.path, episodes=1).per_seed.keys()
    assert len({tuple(values) for values in evaluated(trained.path).values()}) > 1


def test_the_best_agent_is_chosen_by_it_and_the_summary_says_so(trained: RunResult) -> None:
    best = trained.summary["best"]
    for seed in range(2):
        scores = {steps: values[seed] for steps, values in evaluated(trained.path).items()}
        highest = max(value for value in scores.values() if value is not None)
        newest = max(steps for steps, value in scores.items() if value == highest)
        assert best[seed] == {"steps": newest, "return": highest}
    updates = load_run(trained.path, "best").updates
    assert updates == [score["steps"] // STEPS_PER_UPDATE for score in best]
    assert trained.summary["best_by"] == "evaluation"
    newest = trained.summary["evaluation"]
    steps, values = list(evaluated(trained.path).items())[-1]
    assert newest["steps"] == steps and newest["means"]["return"]["per_seed"] == values
    said = str(trained)
    assert f"evaluation at step {steps:,} (10 episodes, greedy actions): success 0." in said
    assert "best evaluation: return" in said
    assert "evaluation" not in "".join(trained.summary["final"])


def test_a_best_agent_by_evaluations_ignores_the_training() -> None:
    best, state = Best(1, evaluated=True), {"seed": {"agent": np.zeros(1)}}
    row = {"episodes": [500], "return": [9.0]}
    best.see({"update": 1, **row}, state)
    assert not best.complete
    best.see({"update": 2, **row, "evaluation.return": [None]}, state)
    best.see({"update": 3, **row, "evaluation.return": [1.0]}, state)
    best.see({"update": 4, **row, "evaluation.return": [0.5]}, state)
    assert best.scores == [Score(3, 1.0)]


def test_a_resumed_run_has_the_same_evaluations(trained: RunResult, tmp_path: Path) -> None:
    """Such as one killed after its last checkpoint, and one whose steps are raised."""

    def fail(report: Report) -> None:
        if report.steps >= 40 * STEPS_PER_UPDATE:
            raise SystemExit

    config = short_config(tmp_path, **EVALUATION, checkpoint_seconds=0.0)
    with pytest.raises(SystemExit):
        clew.train(config, progress=Watch(fail))
    for path in sorted((tmp_path / "run/checkpoints").glob("update-*"))[1:]:
        path.unlink()
    watch = Watch()
    clew.train(resume=tmp_path / "run", progress=watch)
    assert any("dropped, to be written again" in line for line in watch.messages)
    assert_same_run(tmp_path / "run", trained.path)

    raised = replace(config, name="raised", steps=STEPS // 2)
    path = clew.train(raised, progress=Watch()).path
    clew.resume_run(path, steps=STEPS, progress=Watch())
    assert_same_run(path, trained.path)
    with pytest.raises(UserError, match="was started with evaluate_every = 3000, not 0"):
        clew.train(replace(config, evaluate_every=0), resume=True)


def test_it_compiles_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    play = compiled_task.play_batch

    def counted(*args: Any) -> Any:
        traced.append(args)
        return play(*args)

    monkeypatch.setattr(compiled_task, "play_batch", counted)
    config = short_config(tmp_path, **EVALUATION)
    watch = Watch()
    path = clew.train(config, progress=watch).path
    assert len(evaluated(path)) == watch.phases.count("evaluating") > 1
    assert len(traced) == 1


def test_what_comes_to_nothing_is_said_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    config = short_config(tmp_path, evaluate_every=STEPS, evaluate_max_steps=2)
    result = clew.train(config, progress=watch)
    assert evaluated(result.path) == {STEPS: [None, None]}
    told = "no evaluation of seed 1 at step 8,192: an episode did not end within 2 steps (evaluate_"
    assert any(told in line for line in watch.messages)
    assert f"at step {STEPS:,} (16 episodes, greedy actions): no episode ended" in str(result)
    with pytest.raises(UserError, match="from the first checkpoint after an evaluation of every"):
        load_run(result.path, "best")

    one = evaluation.Evaluation(make_parts(config), watch.message)

    def broken(*args: Any) -> Any:
        raise EnvironmentFault("it broke")

    monkeypatch.setattr(one, "_play", broken)
    state = init_run(make_parts(config)).seed
    assert one(8, state) == {"evaluation.return": [None, None]}
    assert watch.messages[-1].endswith("of seed 1 at step 1,024: it broke")


def learning(algorithm: str, folder: Path) -> clew.TrainConfig:
    """A short run of each learner, on the corridor or, for SAC, in Gymnasium's pendulum."""
    if algorithm == "r2d2":
        return replaying_config(folder)
    if algorithm in ("ppo", "pqn"):
        return small_config(folder, algorithm=algorithm, a2c=clew.A2CConfig())
    return pole_config(
        folder,
        env="gymnasium:Pendulum-v1",
        env_options={"max_episode_steps": 20},
        algorithm="sac",
        ppo=clew.PPOConfig(),
        sac=clew.SACConfig(
            num_envs=4, rollout_length=32, learning_starts=128, replay_steps=512, batch_size=4
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "actions"),
    [("ppo", "sampled"), ("pqn", "greedy"), ("r2d2", "sampled"), ("sac", "greedy")],
)
def test_every_learner_is_evaluated(tmp_path: Path, algorithm: str, actions: str) -> None:
    made = learning(algorithm, tmp_path)
    config = replace(
        made,
        steps=made.steps_per_update * 8,
        evaluate_every=made.steps_per_update * 4,
        evaluate_episodes=3,
        evaluate_actions=actions,
        log_every=2,
    )
    path = clew.train(config, progress=Watch()).path
    found = evaluated(path)
    assert [*found] == [config.evaluate_every, config.evaluate_every * 2]
    assert np.isfinite([*found.values()]).all()
    assert min(load_run(path, "best").updates) > 0


@pytest.mark.parametrize("serial", fast_only([True, False], True))
def test_asynchronous_training_is_evaluated(tmp_path: Path, serial: bool) -> None:
    """In turns mode it equals training without evaluation, bit for bit."""
    config = pole_config(tmp_path, seeds=1, runner="async", asynchronous=AsyncConfig(serial=serial))
    made = replace(config, name="with", evaluate_every=512, evaluate_episodes=3)
    path = clew.train(made, progress=Watch()).path
    assert [*evaluated(path)] == [512, 1024]
    if serial:
        assert_same_training(path, clew.train(config, progress=Watch()).path)


def test_progress_keeps_the_newest_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"return": [1.0], "evaluation.return": [3.0, 4.0], "evaluation.success": [None, 1.0]},
        {"return": [2.0]},
    ]
    lines = Lines(every=0.0)
    for row in rows:
        lines.report(Report(5, 10, 1.0, 1.0, 1.0, row))
    *_, last = capsys.readouterr().err.splitlines()
    assert last.endswith("return 2.00  evaluation return 3.50  evaluation success 1.00")
    assert "evaluation return 3.50" in summary_line(Report(5, 10, 1.0, 1.0, 1.0, None), rows[0])


def test_the_time_left_counts_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is assumed to take as long as the newest; the first one compiles."""
    config = short_config(tmp_path, evaluate_every=STEPS // 4)
    one = evaluation.Evaluation(make_parts(config), print)
    monkeypatch.setattr(one, "_of_seed", lambda *args: {"return": 1.0})
    clock = SimpleNamespace(perf_counter=iter([0.0, 10.0, 12.0]).__next__)
    monkeypatch.setattr(evaluation, "time", clock)
    state = init_run(make_parts(config)).seed
    assert one.seconds_left(0) == 0.0
    for update, left in ((UPDATES // 4, 0.0), (UPDATES // 2, 4.0)):
        assert one(update, state) == {"evaluation.return": [1.0, 1.0]}
        assert one.seconds_left(update) == left


def test_what_names_a_run_does_not_depend_on_it() -> None:
    """The digest is the same without it; checkpoints are compatible with it and without."""
    plain, other = clew.TrainConfig(), clew.TrainConfig(**EVALUATION)
    assert not [name for name in plain.identity() if name.startswith("evaluate")]
    assert other.identity() == plain.identity() | EVALUATION
    assert other.digest() == plain.digest()


def test_every_row_is_one_if_they_are_further_apart() -> None:
    config = clew.TrainConfig(evaluate_every=1, log_every=5)
    assert [u for u in range(1, 16) if is_due(config, u)] == [*range(1, 16)]
    config = replace(config, evaluate_every=config.steps_per_update * 10)
    assert [u for u in range(5, 41, 5) if is_due(config, u)] == [10, 20, 30, 40]
    assert not is_due(replace(config, evaluate_every=0), 10)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"evaluate_every": -1}, "evaluate_every must be an integer of at least 0, got -1"),
        ({"evaluate_every": 1e4}, "evaluate_every must be an integer of at least 0, got 10000.0"),
        ({"evaluate_episodes": 0}, "evaluate_episodes must be an integer of at least 1, got 0"),
        ({"evaluate_max_steps": 0}, "evaluate_max_steps must be an integer of at least 1, got 0"),
        ({"evaluate_actions": "both"}, "value of evaluate_actions 'both'; known: greedy, sampled"),
        ({"evaluate_actions": True}, "evaluate_actions must be a string, got True"),
    ],
)
def test_impossible_values_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as error:
        make_parts(clew.TrainConfig(**changes))
    assert told in str(error.value)


def test_what_has_no_use_is_said(tmp_path: Path) -> None:
    watch = Watch()
    config = short_config(tmp_path, "never", evaluate_every=STEPS + 1, steps=STEPS_PER_UPDATE)
    clew.train(config, progress=watch)
    assert any("no evaluation in this run, and so no best" in line for line in watch.messages)
    clew.train(
        short_config(tmp_path, "off", evaluate_episodes=9, steps=STEPS_PER_UPDATE), progress=watch
    )
    assert "evaluate_episodes changes nothing without evaluate_every" in watch.messages


def test_studies_and_sweeps_have_evaluations_of_their_own() -> None:
    config = clew.TrainConfig(**EVALUATION)
    with pytest.raises(UserError, match="leave evaluate_every of gru at 0, got 3000"):
        Study("s", models={"gru": config}, settings={"a": Setting("tmaze")}, seeds=(0,), steps=9)
    with pytest.raises(UserError, match="a sweep scores the training .* got 3000"):
        Sweep(config, {"a2c.gamma": (0.9, 0.99)}).check()


def test_a_metric_of_the_task_is_not_called_so() -> None:
    with pytest.raises(UserError, match="has a metric 'evaluation.return', a name that rows"):
        metrics.refuse_taken_names(clew.TrainConfig(), ["evaluation.return"])


def test_a_run_without_it_is_summarised_as_before(tmp_path: Path) -> None:
    config = short_config(tmp_path, steps=STEPS_PER_UPDATE * 8)
    path = clew.train(config, progress=Watch()).path
    summary = json.loads((path / "summary.json").read_text())
    assert summary["evaluation"] is None and summary["best_by"] == "training"
