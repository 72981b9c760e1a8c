"""A learner with a replay: its state in every runner, its file in checkpoints, and its clock."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import clew
from clew.agents.heads import ActorCritic, Clock, MakeHeads
from clew.agents.learners.base import Gathering, Learned, LearnerState, init_optimiser
from clew.agents.learners.r2d2 import R2D2Config
from clew.agents.learners.sac import SACConfig
from clew.agents.network import Agent, NetworkConfig
from clew.agents.trajectory import Rollout
from clew.errors import UserError
from clew.run import checkpoint
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.config import TrainConfig
from clew.run.progress import Quiet
from slow_cases import fast_only
from small_run import BRIEF_REPLAY, Watch, newest

KEPT = 4
"""Number of rollouts that the learner keeps."""


@dataclass(frozen=True)
class KeeperConfig:
    """Settings of `Keeper`."""

    num_envs: int = 4
    rollout_length: int = 8
    sequence_length: int = 4
    learning_rate: float = 0.0
    gamma: float = 0.9
    max_grad_norm: float | None = None

    def validate(self) -> None: ...


def by_the_clock(outputs: Any, clock: Clock) -> jax.Array:
    """An action that encodes which environment acts, and when."""
    actions = outputs.logits.shape[-1]
    wanted = (clock.environment + clock.step) % actions
    chosen = jax.nn.one_hot(jnp.broadcast_to(wanted, outputs.value.shape), actions)
    return jnp.where(chosen > 0, 0.0, -1e9)


@dataclass(frozen=True)
class Keeper:
    """Keeps its newest rollouts and learns nothing; its metrics show its inputs."""

    settings: ClassVar[type] = KeeperConfig
    metrics: ClassVar[tuple[str, ...]] = ("loss", "wrong", "kept")
    config: KeeperConfig
    updates: int = 1

    @property
    def gathering(self) -> Gathering:
        length = self.config.sequence_length
        return Gathering(sequence_length=length, tolerates_lag=True, behaviour=by_the_clock)

    @property
    def make_heads(self) -> MakeHeads:
        return ActorCritic

    def init(self, agent: Agent, template: Callable[[], Rollout]) -> LearnerState:
        blank = jax.tree.map(lambda x: jnp.zeros((KEPT, *x.shape), x.dtype), template().chunks)
        state = init_optimiser(optax.sgd(0.0), agent)
        return state._replace(others=jnp.int32(0), replay=blank)

    def learn(self, agent: Agent, state: LearnerState, rollout: Rollout, key: Any) -> Learned:
        number, chunks = state.others, rollout.chunks
        kept = jax.tree.map(lambda a, x: a.at[number % KEPT].set(x), state.replay, chunks)
        steps, length = self.config.rollout_length, self.config.sequence_length
        time = number * steps + jnp.arange(steps).reshape(-1, length)
        actions = agent.distribution.num_outputs
        environments = jnp.arange(self.config.num_envs).reshape(1, 1, -1)
        expected = (time[..., None] + environments) % actions
        wrong = jnp.sum((chunks.action != expected) & ~chunks.last[:, :-1])
        kept_reward = jnp.sum(jnp.abs(kept.log_prob))
        metrics = {
            "loss": jnp.zeros(()),
            "wrong": wrong.astype(jnp.float32),
            "kept": kept_reward + jnp.sum(kept.reward),
        }
        return Learned(agent, state._replace(others=number + 1, replay=kept), metrics)


def config_of(folder: Path, updates: int, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "tmaze",
        "env_options": {"corridor_length": 2},
        "memory": "gru",
        "memory_options": {"hidden_size": 8},
        "algorithm": "test_replay:Keeper",
        "steps": updates * 32,
        "log_every": 1,
        "run_dir": str(folder),
        "name": "run",
        "checkpoint_seconds": 0.0,
    }
    return TrainConfig(**settings | changes)


R2D2 = {"algorithm": "r2d2", "r2d2": R2D2Config(**BRIEF_REPLAY)}
SAC = {
    "algorithm": "sac",
    "network": NetworkConfig(memory_of_critic="separate"),
    "sac": SACConfig(**BRIEF_REPLAY, gradient_steps=2),
}
CONTINUOUS = {"env": "gymnasium:Pendulum-v1", "env_options": {}}
HOSTED = {"env": "gymnasium:CartPole-v1", "env_options": {}}
ASYNC = {"runner": "async", "asynchronous": AsyncConfig(serial=True)}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "runner", fast_only([{}, {"seeds": 2}, HOSTED, HOSTED | ASYNC], HOSTED), ids=str
)
def test_who_acts_knows_its_environment_and_the_time(tmp_path: Path, runner: dict) -> None:
    """In sequences of a rollout, from update to update, and after resuming."""
    clew.train(config_of(tmp_path, 3, **runner), progress=Quiet())
    clew.train(config_of(tmp_path, 6, **runner), resume=True, progress=Quiet())
    rows = rows_of(tmp_path / "run")
    assert len(rows) >= 6
    assert not np.any([row["learner.wrong"] for row in rows])


@pytest.mark.parametrize(
    "runner",
    fast_only(
        [{}, {"seeds": 2}, HOSTED, R2D2, R2D2 | HOSTED, SAC | {"seeds": 2}, SAC | CONTINUOUS],
        {"seeds": 2},
    ),
    ids=["", "seeds", "hosted", "r2d2", "r2d2 hosted", "sac", "sac continuous"],
)
def test_replay_has_a_file_of_its_own(tmp_path: Path, runner: dict) -> None:
    """Resumed bit for bit; only resuming reads it; if it is damaged, the one before is used."""
    whole = clew.train(config_of(tmp_path / "a", 6, **runner), progress=Quiet())
    config = config_of(tmp_path / "b", 3, **runner)
    path = clew.train(config, progress=Quiet()).path
    files = sorted(p.name for p in (path / "checkpoints").iterdir())
    assert [f for f in files if f.endswith(".replay")] == [
        f.replace(".clew", ".replay") for f in files if f.endswith(".clew")
    ]
    kept_in = newest(path)
    saved = checkpoint.read(kept_in)
    assert not any("replay" in leaf for leaf in saved.leaves)
    kept = {leaf.rpartition("/")[2] for leaf in checkpoint.read_replay(saved).leaves}
    assert kept >= {"action", "reward"}
    clew.train(replace(config, steps=6 * 32), resume=True, progress=Quiet())
    if not runner.get("env"):  # environments on the host are reset
        ends = [checkpoint.read(newest(one)) for one in (whole.path, path)]
        for a, b in (ends, map(checkpoint.read_replay, ends)):
            assert a.leaves.keys() == b.leaves.keys()
            assert all(np.array_equal(a.leaves[n], b.leaves[n]) for n in a.leaves)
    for replay in (path / "checkpoints").glob("*.replay"):
        replay.unlink()
    clew.load_policy(path)
    # A greedy untrained policy may stand still forever.
    greedy = runner.get("algorithm") != "sac"
    clew.evaluate(path, episodes=1, max_steps=600, greedy=greedy)
    with pytest.raises(UserError, match=r"\.replay: cannot be read"):
        clew.train(replace(config, steps=9 * 32), resume=True, progress=Quiet())


def test_a_damaged_or_foreign_replay_is_passed_over(tmp_path: Path) -> None:
    """It is named with the reason; replays without a checkpoint are removed."""
    folder = tmp_path / "checkpoints"
    for update in range(1, 6):
        tree = {"a": np.full(3, update), "b": np.zeros((), np.float32)}
        checkpoint.save(folder, tree, {"update": update}, {}, {"x": np.arange(update + 4)})
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"update-00000000{n}.{end}" for n in (3, 4, 5) for end in ("clew", "replay")]

    def accept(found: checkpoint.Checkpoint) -> np.ndarray:
        return checkpoint.read_replay(found).leaves["/x"]

    found = checkpoint.load_newest(folder, accept)
    assert found is not None and len(found[1]) == 9
    (folder / names[3]).replace(folder / names[5])  # another checkpoint's
    (folder / names[1]).write_bytes((folder / names[1]).read_bytes()[:-1])
    with pytest.raises(checkpoint.CheckpointError) as raised:
        checkpoint.load_newest(folder, accept)
    reasons = str(raised.value)
    assert "update 4, but its name has another" in reasons or "is not the one" in reasons
    assert "cannot be read" in reasons and "cut short" in reasons
    (folder / names[0]).unlink()
    checkpoint.remove_leftovers(folder)
    assert not (folder / names[1]).exists() and (folder / names[5]).exists()


class Killed(BaseException):
    """A kill, after which nothing more is executed."""


@pytest.mark.parametrize("where", ["fsync", "replace"])
@pytest.mark.parametrize("written", range(2))
def test_a_kill_between_the_files_of_a_checkpoint_loses_nothing(
    where: str, written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the replay is written, and while the file that names it is."""
    folder = tmp_path / "checkpoints"

    def save(update: int) -> None:
        tree = {"a": np.full(3, update)}
        checkpoint.save(folder, tree, {"update": update}, {}, {"x": np.full(5, update)})

    for update in (1, 2):
        save(update)
    calls = itertools.count()
    real = getattr(os, where)

    def killed(*args: Any) -> Any:
        # A folder is synchronised too, after each file.
        if next(calls) == written * (2 if where == "fsync" else 1):
            raise Killed
        return real(*args)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(f"clew.files.os.{where}", killed)
        save(3)
    checkpoint.remove_leftovers(folder)
    found = checkpoint.load_newest(folder, lambda read: checkpoint.read_replay(read).leaves["/x"])
    assert found is not None and (found[1] == 2).all() and not found[2]
    save(3)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"update-00000000{n}.{end}" for n in (1, 2, 3) for end in ("clew", "replay")]


@pytest.mark.slow
def test_what_a_replay_takes_is_said_and_must_have_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four files of the arrays' bytes; a disk without room for them is refused at the start."""
    seen = Watch()
    clew.train(config_of(tmp_path, 3, **R2D2), progress=seen)
    said = [line for line in seen.messages if line.startswith("replay: ")]
    assert len(said) == 1 and "MB of memory, and " in said[0]
    small = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("clew.run.runner.shutil.disk_usage", lambda path: small)
    with pytest.raises(UserError, match=r"take 0 MB \(4 files of 0 MB\), but the disk of"):
        clew.train(config_of(tmp_path, 3, name="other", **R2D2), progress=Quiet())
    # If three exist already, there must be room for one more.
    one = max(p.stat().st_size for p in (tmp_path / "run/checkpoints").glob("*.replay"))
    room = small._replace(free=one)
    monkeypatch.setattr("clew.run.runner.shutil.disk_usage", lambda path: room)
    assert clew.train(config_of(tmp_path, 4, **R2D2), resume=True, progress=Quiet()).summary
