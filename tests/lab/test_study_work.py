"""A pack computes the same as training alone; an evaluation logs what it plays."""

import json
import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import clew
from clew.envs import MemoryChain
from clew.errors import UserError
from clew.lab.grid import Evaluation, Pack, Study
from clew.lab.grid.jobs import checkpoints_of, make_job, run_job
from clew.lab.grid.measure import evaluate_lanes
from clew.lab.grid.worker import answer
from clew.memory import MEMORIES
from clew.run.build import make_parts
from clew.run.lanes import Lane
from clew.run.progress import Quiet
from clew.run.runner import TrainingDiverged
from clew.run.updates import init_run
from small_study import Killed, small_study, stop_at

SEEDS = (4, 0, 7)
PACK = Pack("gru", ("length-3",), SEEDS)


@pytest.fixture(scope="module")
def rows():
    """One pack of three seeds."""
    shares: list[float] = []
    found = run_job(make_job(_study(), PACK, None), shares.append)
    assert shares == [0.0, 0.25, 0.5, 0.75, 1.0]
    return found


def _study() -> Study:
    return small_study(episodes=80)


def test_a_row_says_what_it_is(rows) -> None:
    study = _study()
    assert [row["seed"] for row in rows] == list(SEEDS)
    for row in rows:
        assert json.loads(json.dumps(row, allow_nan=False)) == row
        assert (row["model"], row["setting"]) == ("gru", "length-3")
        assert row["digest"] == study.digest("gru", "length-3")
        assert -1 <= row["mean"] <= 1 and row["episodes"] == 10
        assert row["mean"] == pytest.approx(2 * row["evaluation"]["means"]["success"] - 1)
        share = (row["mean"] + 1) / 2
        error = 2 * math.sqrt(share * (1 - share) / 9)
        assert row["standard_error"] == pytest.approx(error, rel=1e-4)
        assert row["curve"]["steps"] == [80, 160, 240, 320] and row["steps"] == 320
        assert row["curve"]["episodes"] == [20] * 4
        assert row["seconds"] > 0 and row["pack"]["seeds"] == list(SEEDS)
        assert row["versions"]["jax"] == jax.__version__ and "git_commit" in row
        assert "sources" not in row
        assert row["parameters"] == rows[0]["parameters"] > 100


def test_a_pack_is_training_alone(rows, tmp_path) -> None:
    """With the same initial parameters it has the same episodes and the same returns."""
    config = _study().config("gru", "length-3")
    for row in rows[:2]:
        alone = replace(config, seeds=1, seed=row["seed"], run_dir=str(tmp_path))
        run = clew.train(alone, progress=Quiet())
        metrics = clew.read_metrics(run.path)
        curve = [m["return"][0] for m in metrics]
        assert row["curve"]["return"] == pytest.approx(curve, abs=0.11)
        assert row["curve"]["return"][0] == pytest.approx(curve[0])
        assert run.summary["parameters"] == row["parameters"]


@pytest.mark.slow
def test_a_single_seed_is_bit_for_bit_training_alone(tmp_path) -> None:
    study = _study()
    (row,) = run_job(make_job(study, PACK._replace(seeds=(7,)), None))
    config = study.config("gru", "length-3", (7,))
    run = clew.train(replace(config, run_dir=str(tmp_path)), progress=Quiet())
    assert row["curve"]["return"] == [m["return"][0] for m in clew.read_metrics(run.path)]


@pytest.mark.slow
def test_seeds_of_any_numbers_begin_as_alone() -> None:
    config = _study().config("gru", "length-3")
    together = init_run(make_parts(config), SEEDS)
    for index, seed in enumerate(SEEDS):
        alone = init_run(make_parts(replace(config, seeds=1)), [seed])
        for a, b in zip(
            jax.tree.leaves(together.seed.agent), jax.tree.leaves(alone.seed.agent), strict=True
        ):
            assert (a[index] == b).all()


def test_an_evaluation_plays_the_first_episodes_of_the_stream() -> None:
    """Greedily, so that a plain loop over the episodes does the same."""
    config = _study().config("gru", "length-3", SEEDS[:2])
    parts = make_parts(config)
    state = init_run(parts, SEEDS[:2])
    lanes = [Lane(replace(config, seed=seed, seeds=1)) for seed in SEEDS[:2]]
    found = evaluate_lanes(parts, state, lanes, Evaluation(130, greedy=True, stream=True))
    params = jax.tree.map(lambda leaf: leaf[1], state.seed.agent)
    agent = eqx.combine(params, parts.static)
    env, step = MemoryChain(**config.env_options), eqx.filter_jit(agent.step)
    for episode in (0, 1, 5):
        env_state, seen = env.reset_at(episode)
        memory, total, start, ended = agent.init_state(), 0.0, jnp.array(True), False
        while not ended:
            memory, outputs = step(memory, seen, start)
            env_state, then = env.step(env_state, jnp.argmax(outputs.logits), jax.random.key(0))
            seen, start, ended = then.observation, jnp.array(False), bool(then.terminated)
            total += float(then.reward)
        assert found[1]["return"][episode] == total
    assert all(seed["return"].shape == (130,) for seed in found)
    assert set(np.unique(found[0]["return"])) <= {-1.0, 1.0}


def test_a_pack_that_is_killed_goes_on_and_ends_as_if_nothing_had_been(rows, tmp_path) -> None:
    job = make_job(_study(), PACK, tmp_path)
    with pytest.raises(Killed):
        run_job(job, stop_at(0.6))
    assert checkpoints_of(_study(), PACK, tmp_path) == list(tmp_path.glob("packs/gru-*/*.clew"))
    shares: list[float] = []
    again = run_job(job, shares.append)
    assert shares == [0.75, 1.0]
    for row, other in zip(again, rows, strict=True):
        assert (row["curve"], row["mean"]) == (other["curve"], other["mean"])
    assert not list(tmp_path.glob("packs/*"))


def test_a_seed_that_diverges_is_named(tmp_path) -> None:
    """It has no checkpoint, since those of a pack are removed then."""
    study = small_study()
    wild = replace(study.models["none"].a2c, learning_rate=1e30)
    agent = replace(study.models["none"], a2c=wild, checkpoint_seconds=1e-6)
    study = replace(study, models={"none": agent}, episodes=200)
    told = r"length-1, seed 4 is no longer finite at update \d+; try"
    with pytest.raises(TrainingDiverged, match=told):
        run_job(make_job(study, Pack("none", ("length-1",), (4, 0)), tmp_path))
    assert not list(tmp_path.glob("packs/*"))


@pytest.mark.parametrize("seeds", [(4, 0), pytest.param((4,), marks=pytest.mark.slow)])
def test_an_episode_without_an_end_is_named(seeds: tuple[int, ...], tmp_path) -> None:
    """Several seeds are then tried one by one, so their checkpoints are of no use."""
    study = small_study(evaluation=Evaluation(episodes=3, max_steps=1))
    job = make_job(study, Pack("none", ("length-2",), seeds), tmp_path)
    told = json.loads(answer(run_job, job, lambda share: None))
    assert told["error"].startswith("an episode of length-2, seed 4 did not end within 1 steps")
    assert told["begun"] and bool(list(tmp_path.glob("packs/*"))) == (len(seeds) == 1)


def test_what_cannot_be_built_has_not_begun() -> None:
    study = small_study(score="sucess")
    told = answer(run_job, make_job(study, PACK, None), lambda share: None)
    assert not json.loads(told)["begun"]


@pytest.mark.parametrize("row", [{"mean": math.nan}, {"mean": {1, 2}}])
def test_a_row_that_the_file_cannot_hold_is_a_failure(row: dict) -> None:
    """It used to end the whole study when the row was written."""
    told = json.loads(answer(lambda job, progress: [row], {}, lambda share: None))
    assert told["kind"] == "failed" and "JSON" in told["error"]


def test_an_evaluation_that_is_not_finite_is_named() -> None:
    config = replace(_study().config("none", "length-1", (4,)), env="test_study_work:NoNumbers")
    parts = make_parts(config)
    state = init_run(parts, (4,))
    lanes = [Lane(config, name="length-1, seed 4")]
    with pytest.raises(UserError, match="the return of an evaluated episode of length-1, seed 4"):
        evaluate_lanes(parts, state, lanes, Evaluation(3))


class NoNumbers(MemoryChain):
    """Rewards that are not numbers."""

    def step(self, state, action, key):
        state, transition = super().step(state, action, key)
        return state, transition._replace(reward=transition.reward * jnp.nan)


def test_mistakes_of_a_job_are_told() -> None:
    study = small_study(score="sucess")
    with pytest.raises(UserError, match="unknown value of score 'sucess'; did you mean 'success'"):
        run_job(make_job(study, PACK, None))


@pytest.mark.slow
def test_own_memories_are_known_only_while_they_are_used(monkeypatch, tmp_path) -> None:
    (tmp_path / "only_mine.py").write_text(
        "from clew.memory.gru import GRU\ndef build(input_size, *, key):\n"
        "    return GRU(input_size, key=key, hidden_size=5)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    study = small_study().add_memory("mine", "only_mine:build").only(["mine"])
    (row,) = run_job(make_job(study, Pack("mine", ("length-1",), (0,)), None))
    assert row["model"] == "mine" and row["parameters"] > 100
    assert "mine" not in MEMORIES
    assert study.digest("mine", "length-1") != small_study().digest("gru", "length-1")
