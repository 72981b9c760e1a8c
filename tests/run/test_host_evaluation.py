"""Evaluation, policies and probes after a training on Gymnasium environments."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew import interact
from clew.errors import UserError
from clew.inspect import choose_labels
from clew.interact.task import PlayConfig
from clew.run import progress
from clew.run.build import build_agent, make_task
from clew.run.load import load_agent
from clew.run.metrics import read_metrics
from clew.run.progress import EpisodeLines, Quiet
from faults.changing import LENGTH, Changing

PPO = clew.PPOConfig(num_envs=2, rollout_length=8, sequence_length=8, minibatches=1, epochs=1)


class Named(Changing):
    """Its observation is a category, counted from 1, and two numbers."""

    observation_space = spaces.Dict(
        {"cue": spaces.Discrete(3, start=1), "map": spaces.Box(0, 1, (2,), np.float32)}
    )

    def _observation(self) -> Any:
        if self._time == 0:
            self._cue = self.np_random.integers(1, 4)
        return {"cue": self._cue, "map": super()._observation()}


def config_of(folder: Path, **changes: Any) -> clew.TrainConfig:
    return clew.TrainConfig(
        memory="gru",
        memory_options={"hidden_size": 4},
        ppo=PPO,
        steps=64,
        log_every=2,
        run_dir=str(folder),
        name="run",
        **changes,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on environments with named entries."""
    config = config_of(tmp_path_factory.mktemp("runs"), env=f"{__name__}:Named")
    return clew.train(config, progress=Quiet()).path


@pytest.mark.slow
def test_an_entry_that_is_renamed_is_not_read_in_anothers_place(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries are read in the order of their names, in which "map" would come before "side"."""
    renamed = spaces.Dict(
        {"side": Named.observation_space["cue"], "map": Named.observation_space["map"]}
    )
    interact._gymnasium_task.cache_clear()  # as in another process
    with monkeypatch.context() as changed:
        changed.setattr(Named, "observation_space", renamed)
        with pytest.raises(UserError, match="has changed .* observation/cue was .* and is missing"):
            clew.evaluate(trained, episodes=1)
    interact._gymnasium_task.cache_clear()


@pytest.mark.slow
def test_numbers_of_info_are_reported(trained: Path) -> None:
    """All numbers that every episode has are; labels and texts are not."""
    found = clew.evaluate(trained, episodes=4)
    assert set(found.per_seed) == {"return", "length", "success", "distance", "late"}
    assert found.success is not None and found.pooled["late"].mean == 1


def test_episodes_that_end_are_told() -> None:
    """All are; side by side, environments play the same number of episodes, or one more.

    A JAX task reports them batch by batch.
    """
    hosted = clew.TrainConfig(env=f"{__name__}:Named", memory="none")
    compiled = clew.TrainConfig(env="memory_chain", memory="none")
    for config, episodes, most in ((hosted, 20, 32), (compiled, 100, 100)):
        task, heard = make_task(config), list[int]()
        params, static = eqx.partition(build_agent(config, task, jax.random.key(0)), eqx.is_array)
        play = task.evaluator(static, greedy=True, max_steps=100, on_ended=heard.append)
        play(params, task.statistics(), episodes, (0, 0))
        assert episodes <= sum(heard) <= most and len(heard) > 1


def test_episodes_that_are_played_are_not_filmed(tmp_path: Path) -> None:
    """Only those of a training are, among whose films they would be counted."""
    config = clew.TrainConfig(
        env="labelled:Pictured",
        env_options={"lengths": (2,), "ends": ("terminated",)},
        memory="none",
        wrappers=clew.WrapperConfig(video_every=1, video_folder=str(tmp_path)),
    )
    task = make_task(config)
    params, static = eqx.partition(build_agent(config, task, jax.random.key(0)), eqx.is_array)
    play = task.evaluator(static, greedy=True, max_steps=9)
    assert play(params, task.statistics(), 1, (0, 0))["length"] == 2
    assert not [*tmp_path.iterdir()]


def test_lines_about_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """None before five seconds, then one every five, and none at the end."""
    times, lines = iter([0.0, 4.0, 5.0, 8.0, 10.0, 20.0]), []
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    heard = EpisodeLines(100, lines.append)
    for count in (10, 10, 10, 10, 80):
        heard(count)
    assert lines == [
        "20/100 episodes (20%)  4.0 episodes/s  20s left",
        "40/100 episodes (40%)  4.0 episodes/s  15s left",
    ]


def test_metrics_are_chosen(tmp_path: Path) -> None:
    """For the rows of the training, and then for evaluation alone."""
    wrappers = clew.WrapperConfig(metrics=("success",))
    config = config_of(tmp_path, env="faults.changing:Changing", wrappers=wrappers)
    path = clew.train(config, progress=Quiet()).path
    assert 0 <= read_metrics(path)[-1]["success"][0] <= 1
    assert set(clew.evaluate(path, episodes=4).per_seed) == {"return", "length", "success"}


def test_an_episode_that_does_not_end(trained: Path) -> None:
    """The limit is that of each single episode."""
    assert clew.evaluate(trained, episodes=40, max_steps=LENGTH).per_seed["length"] == [LENGTH]
    says = "Named did not end within 4 steps: allow more .--max-steps, in Python max_steps"
    with pytest.raises(UserError, match=says):
        clew.evaluate(trained, episodes=40, max_steps=LENGTH - 1)


@pytest.mark.parametrize(
    ("observation", "says"),
    [
        ({"cue": 1}, "the observation entry 'map' is missing"),
        ([1, 2], r"observation is \[1, 2\], expected the entries cue, map"),
        (None, "observation is None, expected the entries cue, map"),
        (
            {"cue": 0, "map": [0.0, 1.0]},
            "observation cue is 0, expected a whole number from 1 to 3",
        ),
        ({"cue": 4, "map": [0.0, 1.0]}, "observation cue is 4, expected"),
        ({"cue": 1, "map": None}, r"observation map is None, expected numbers of shape \[2\]"),
        ({"cue": 1, "map": [[0.0], [0.0, 1.0]]}, "observation map is .* numbers of shape"),
    ],
)
def test_a_policy_says_what_it_cannot_read(trained: Path, observation: Any, says: str) -> None:
    policy = clew.load_policy(trained)
    with pytest.raises(UserError, match=says):
        policy(observation, start=True)
    assert policy({"cue": 3, "map": [0.0, 1.0]}, start=True) in (0, 1)


def test_entries_are_probed_by_name(trained: Path) -> None:
    """In a dict, instead of by meaningless indices."""
    loaded = load_agent(trained)
    task = make_task(loaded.config)
    episodes = task.episodes(loaded.agent, PlayConfig(episodes=8), loaded.statistics)
    assert episodes.entries == episodes.first(2).entries == ("cue", "map[0]", "map[1]")
    assert set(choose_labels(episodes, ["cue"])) == {"cue"}
    with pytest.raises(UserError, match=r"unknown label to probe 'map'; .*'map\[0\]'"):
        choose_labels(episodes, ["map"])
