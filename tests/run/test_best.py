"""The best agent of every seed: how it is chosen, that it is kept, and how it can be used."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import clew
from clew.cli import run
from clew.envs import TMaze
from clew.errors import UserError
from clew.run import checkpoint
from clew.run.best import AGENT, EPISODES, Best, Recent, Score
from clew.run.checkpoint import CheckpointError, Identity
from clew.run.load import load_agent, load_run
from clew.run.runner import TrainingDiverged
from small_run import STEPS_PER_UPDATE, Watch, last_state, small_config

UPDATES = 128
IDENTITY = Identity("a run", ("its settings",))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = small_config(tmp_path_factory.mktemp("best"), steps=UPDATES * STEPS_PER_UPDATE)
    return clew.train(config, progress=Watch()).path


def row(update: int, episodes: list[int], means: list[float | None]) -> dict[str, Any]:
    return {"update": update, "episodes": episodes, "return": means}


def state(update: int) -> dict[str, Any]:
    """Two seeds of an agent with one weight, which encodes its update."""
    agent = {"weight": np.array([update, update + 0.5])}
    return {"seed": {"agent": agent, "learner": {"count": np.zeros(2)}}}


def kept(best: Best, folder: Path) -> list[float]:
    best.save(folder, IDENTITY)
    leaves = checkpoint.read(folder / checkpoint.BEST).leaves
    assert list(leaves) == ["/seed/agent/weight"]
    return leaves["/seed/agent/weight"].tolist()


def test_a_mean_is_over_the_newest_rows_of_a_hundred_episodes() -> None:
    """It equals NumPy's over the fewest such rows; rows without episodes are skipped."""
    rng = np.random.default_rng(0)
    rows = [(int(n), float(rng.normal())) for n in rng.integers(0, 70, 200)]
    recent, asked = Recent(), 0
    for end, (episodes, mean) in enumerate(rows, start=1):
        found = recent.add(episodes, mean if episodes else None)
        counts = np.cumsum([n for n, _ in reversed(rows[:end])])
        if not episodes or counts[-1] < EPISODES:
            assert found is None
            continue
        newest = rows[end - 1 - int(np.argmax(counts >= EPISODES)) : end]
        numbers, means = zip(*newest, strict=True)
        assert found == pytest.approx(np.average(means, weights=numbers))
        asked += 1
    assert asked > 150


def test_each_seed_keeps_its_own_and_the_newest_of_equals(tmp_path: Path) -> None:
    """Nothing is written before every seed has had enough episodes."""
    best = Best(2)
    best.see(row(1, [100, 99], [1.0, 5.0]), state(1))
    assert not best.complete
    best.save(tmp_path, IDENTITY)
    assert not (tmp_path / checkpoint.BEST).exists()
    best.see(row(2, [100, 100], [2.0, 3.0]), state(2))
    assert kept(best, tmp_path) == [2.0, 2.5]
    best.see(row(3, [100, 100], [1.0, 3.0]), state(3))
    best.see(row(4, [0, 0], [None, None]), state(4))
    assert best.follow({"update": 4, "episodes": [200, 200]}) == []
    assert kept(best, tmp_path) == [2.0, 3.5]
    assert best.scores == [Score(2, 2.0), Score(3, 3.0)]

    again = Best(2)
    again.load(tmp_path, IDENTITY)
    again.follow(row(3, [100, 100], [1.0, 3.0]))
    again.see(row(5, [100, 100], [1.9, 3.1]), state(5))
    assert kept(again, tmp_path) == [2.0, 5.5]


@pytest.mark.parametrize("seeds", [None, 3, [[1, 2.0]], [[1, "x"], [1, 2.0]], [[1], [2]], "ab"])
def test_a_file_without_scores_is_refused(tmp_path: Path, seeds: Any) -> None:
    meta = {"update": 1, **IDENTITY.meta()} | ({} if seeds is None else {"seeds": seeds})
    file = tmp_path / checkpoint.BEST
    checkpoint.save_agents(file, {"/seed/agent/weight": np.zeros(2)}, meta, {})
    with pytest.raises(CheckpointError, match="lacks a score for each of the run's 2 seeds"):
        Best(2).load(tmp_path, IDENTITY)


def test_it_is_the_agent_of_that_update(trained: Path, tmp_path: Path) -> None:
    """Bit for bit, for every seed, the agent of a run that ends at that update."""
    read = checkpoint.read(trained / "checkpoints" / checkpoint.BEST)
    scores = [Score(*score) for score in read.meta["seeds"]]
    for seed, score in enumerate(scores):
        steps = score.update * STEPS_PER_UPDATE
        other = clew.train(small_config(tmp_path, f"to-{seed}", steps=steps), progress=Watch())
        last = {k: v[seed] for k, v in last_state(other.path).items() if k.startswith(AGENT)}
        assert last and last.keys() == read.leaves.keys()
        for name, leaf in last.items():
            np.testing.assert_array_equal(read.leaves[name][seed], leaf)


def test_its_score_is_that_of_the_rows(trained: Path) -> None:
    """It is the highest mean of all, and the summary says when it was reached."""
    rows = clew.read_metrics(trained)
    best = json.loads((trained / "summary.json").read_text())["best"]
    for seed in range(2):
        recent = Recent()
        means = [recent.add(r["episodes"][seed], r["return"][seed]) or -math.inf for r in rows]
        assert best[seed]["return"] == max(means)
        newest = max(r["steps"] for r, mean in zip(rows, means, strict=True) if mean == max(means))
        assert best[seed]["steps"] == newest


@pytest.mark.slow
def test_every_command_on_a_run_takes_it(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = load_run(trained, "best")
    scores = checkpoint.read(trained / "checkpoints" / checkpoint.BEST).meta["seeds"]
    assert found.updates == [update for update, _ in scores]
    best = load_agent(trained, 1, "best.clew")
    assert best.update == found.updates[1]
    assert eqx.tree_equal(clew.load(trained, 1, checkpoint="best"), best.agent)
    result = clew.evaluate(trained, episodes=20, checkpoint="best")
    assert result.steps == max(found.updates) * STEPS_PER_UPDATE
    start = str(trained / "checkpoints" / checkpoint.BEST)
    config = small_config(tmp_path, start_from=start, steps=STEPS_PER_UPDATE)
    watch = Watch()
    clew.train(config, progress=watch)
    assert any("starting from the agent" in line for line in watch.messages)
    assert run(["evaluate", str(trained), "--checkpoint", "best", "--episodes", "20"]) == 0
    assert "success" in capsys.readouterr().out
    quick = ["--episodes", "8", "--influence-episodes", "1", "--actions", "sampled", "--json"]
    seen = ["--seed-index", "1", "--checkpoint", "best"]
    assert run(["inspect", str(trained), "--output", str(tmp_path), *quick, *seen]) == 0
    inspected = json.loads(capsys.readouterr().out)
    assert inspected["steps"] == found.updates[1] * STEPS_PER_UPDATE


def test_a_run_without_one_says_so(trained: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    (copy / "checkpoints" / checkpoint.BEST).unlink()
    with pytest.raises(UserError, match="no best agent yet: it is kept from the first checkpoint"):
        load_agent(copy, 0, "best")


class Poisoned(TMaze):
    """Its reward is sometimes NaN."""

    def step(self, state: Any, action: Any, key: Any) -> Any:
        after, transition = super().step(state, action, key)
        poison = jax.random.bernoulli(key, 1e-4)
        reward = jnp.where(poison, jnp.nan, transition.reward)
        return after, transition._replace(reward=reward)


def test_a_run_that_diverges_keeps_it(tmp_path: Path) -> None:
    """It is the best of its rows, including those after the last checkpoint."""
    config = small_config(tmp_path, env=f"{__name__}:Poisoned", steps=UPDATES * STEPS_PER_UPDATE)
    with pytest.raises(TrainingDiverged, match="environment.* gave nan in its rewards") as stop:
        clew.train(config, progress=Watch())
    assert "learning_rate" not in str(stop.value)
    path = tmp_path / config.name
    rows = clew.read_metrics(path)
    assert rows and len(list((path / "checkpoints").glob("update-*"))) == 1
    assert min(load_run(path, "best").updates) > 0


def test_a_damaged_one_is_named_and_kept_anew(trained: Path, tmp_path: Path) -> None:
    """The run continues nevertheless."""
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    path = copy / "checkpoints" / checkpoint.BEST
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="cut short"):
        load_agent(copy, 0, "best")
    watch = Watch()
    clew.resume_run(copy, steps=(UPDATES + 8) * STEPS_PER_UPDATE, progress=watch)
    assert any("cut short" in line and "from here on" in line for line in watch.messages)
    assert load_run(copy, "best").updates == [UPDATES + 8] * 2


def test_what_wrappers_have_learned_is_kept_with_it(tmp_path: Path) -> None:
    """Each seed's statistics are those at its agent's update, with the observations until then."""
    config = clew.TrainConfig(
        env="gymnasium:CartPole-v1",
        memory="none",
        algorithm="ppo",
        ppo=clew.PPOConfig(num_envs=4, rollout_length=64, minibatches=1, epochs=1),
        wrappers=clew.WrapperConfig(normalise_observations=True),
        network=clew.NetworkConfig(head_size=8),
        steps=4 * 64 * 16,
        seeds=2,
        log_every=1,
        run_dir=str(tmp_path),
    )
    path = clew.train(config, progress=Watch()).path
    found = load_run(path, "best")
    (moments,) = found.statistics["observation"].values()
    per_update = config.steps_per_update
    for seed, update in enumerate(found.updates):
        assert abs(float(moments["count"][seed]) - update * per_update) < per_update
    assert clew.evaluate(path, episodes=2, checkpoint="best").steps == max(found.updates) * 256
