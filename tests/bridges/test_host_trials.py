"""Trials of Gymnasium environments."""

from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import clew
from clew.bridges.gymnasium.task import gymnasium_task
from clew.bridges.gymnasium.trials import TrialEpisodes
from clew.cli import run
from clew.envs.gymnasium_api import JaxTaskEnv
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact import make_task
from clew.run.load import load_agent
from clew.run.progress import Quiet
from trial_envs import Drawing, Keeping

TRIALS = WrapperConfig(trial_episodes=3)
STEPS = 21


def played(env: str, wrappers: WrapperConfig, processes: int = 0) -> list[Any]:
    """Steps of four environments."""
    with gymnasium_task(env).open(4, processes=processes, seed=5, wrappers=wrappers) as stream:
        now = [stream.reset()]
        for time in range(STEPS):
            now.append(stream.step(np.full(4, time % 2)))
        return now


@pytest.mark.parametrize("env", ["trial_envs:Drawing", "trial_envs:Keeping"])
@pytest.mark.parametrize("processes", [0, 2])
def test_a_trial_is_one_episode_with_one_draw(env: str, processes: int) -> None:
    """Six steps, and one that opens the next trial, however the episodes end."""
    steps = played(env, TRIALS, processes)
    draws = np.array([step.observation["observation"][:, 0] for step in steps])
    times = [int(step.observation["observation"][0, 1]) for step in steps]
    assert times == [*[0, 1, 0, 1, 0, 1, 2] * 3, 0]
    trials = draws[:21].reshape(3, 7, 4)
    assert (trials == trials[:, :1]).all()
    assert len(np.unique(trials[:, 0])) == 12 and len(np.unique(trials[:, 0] % 2)) == 2
    assert [i for i, step in enumerate(steps) if step.start.all()] == [0, 7, 14, 21]
    assert [i for i, step in enumerate(steps) if step.ended.all()] == [6, 13, 20]
    assert [i for i, step in enumerate(steps) if (step.discount == 0).all()] == [6, 13, 20]
    flags = [step.observation["previous_ended"][0, 0] for step in steps]
    assert np.flatnonzero(flags).tolist() == [2, 4, 9, 11, 16, 18]
    for i in (6, 13, 20):
        metrics = steps[i].metrics
        for name in ("return_1", "return_2", "return_3"):
            np.testing.assert_array_equal(metrics[name], draws[i] + 1)
        np.testing.assert_array_equal(metrics["return"], 3 * draws[i] + 3)
        assert metrics["length"].tolist() == [6] * 4
    assert steps[5].metrics["return_1"].tolist() == [0] * 4


def test_noise_within_a_trial_is_the_environment_s_to_keep() -> None:
    """An environment without trials repeats its noise; one that has trials need not."""
    for env, repeats in (("trial_envs:Drawing", True), ("trial_envs:Keeping", False)):
        noise = [step.observation["observation"][:, 2] for step in played(env, TRIALS)]
        assert np.array_equal(noise[0], noise[2]) == np.array_equal(noise[1], noise[3]) == repeats


def test_separate_episodes_have_the_same_trials() -> None:
    steps = played("trial_envs:Drawing", WrapperConfig(trial_episodes=3, trial_memory=False))
    assert [i for i, step in enumerate(steps) if step.start.all()] == [0, 3, 6, 9, 12, 15, 18, 21]
    draws = np.array([step.observation[:, 0] for step in steps])[:18].reshape(2, 9, 4)
    assert (draws == draws[:, :1]).all() and (draws[0, 0] != draws[1, 0]).all()
    assert set(steps[2].metrics) == {"return", "length"}


def test_a_new_reset_opens_a_trial() -> None:
    for env in (TrialEpisodes(Drawing(), 3, memory=False), TrialEpisodes(Keeping(), 3)):
        seen = [env.reset(seed=1)[0][0]]
        for _ in range(3):
            env.step(0)
            env.step(0)
            seen.append(env.reset(seed=1)[0][0])
        assert len(set(seen)) == 1 and env.reset()[0][0] != seen[0]


def test_tasks_in_jax_keep_their_draw() -> None:
    """Their Gymnasium form opens a trial's other episodes as `next_in_trial` does."""
    env = TrialEpisodes(JaxTaskEnv("dark_room", size=3, time_limit=2), 2)
    goals, place = [], None
    for seed in range(4):
        _, info = env.reset(seed=seed)
        goals.append(tuple(info["goal"]))
        for time in range(4):
            seen, _, terminated, truncated, info = env.step(time % 4)
            assert tuple(info["goal"]) == goals[-1] and not truncated
            assert terminated == (time == 3) and bool(info.get("episode_ended")) == (time == 1)
            place = seen if time == 1 else place
        np.testing.assert_array_equal(place, JaxTaskEnv("dark_room", size=3).reset()[0])
    assert len(set(goals)) > 1


def test_arms_that_stay_still_pay_by_chance() -> None:
    env = TrialEpisodes(JaxTaskEnv("bandit", arms=2), 50)
    _, info = env.reset(seed=0, options={"probabilities": [0.5, 0.5]})
    paid = [env.step(0)[1] for _ in range(50)]
    assert 10 < sum(paid) < 40 and info["probabilities"].tolist() == [0.5, 0.5]
    bare: gymnasium.Env = JaxTaskEnv("bandit")
    with pytest.raises(UserError, match="new_trial=False needs a trial"):
        bare.reset(options={"new_trial": False})
    chain = TrialEpisodes(JaxTaskEnv("memory_chain", memory_length=2), 3)
    first = chain.reset(seed=0)[0]
    seen = [chain.step(0)[0] for _ in range(6)]
    np.testing.assert_array_equal(seen[2], first)
    np.testing.assert_array_equal(seen[5], first)


def test_a_factory_of_vector_environments_builds_them_in_itself() -> None:
    with pytest.raises(UserError, match="trial_episodes wraps single environments"):
        WrapperConfig(trial_episodes=2).require_no_single("mine")


def trained(folder: Path, env: str, **changes: Any) -> Path:
    """A run of two updates."""
    config = clew.TrainConfig(
        env=env,
        memory="gru",
        memory_options={"hidden_size": 8},
        wrappers=WrapperConfig(trial_episodes=3, reward_scale=0.01),
        algorithm="a2c",
        a2c=clew.A2CConfig(num_envs=4, rollout_length=8, learning_rate=0.03),
        **{"steps": 64, "run_dir": str(folder), **changes},
    )
    return clew.train(config, progress=Quiet()).path


@pytest.mark.slow
def test_a_policy_and_its_export_play_trials(tmp_path: Path, capsys: Any) -> None:
    """They act like the agent, which reads the stream's observations; a new trial resets them."""
    path = trained(tmp_path, "trial_envs:Keeping")
    assert run(["export", str(path), "--episodes", "3"]) == 0
    assert "golden episode" in capsys.readouterr().out
    loaded = load_agent(path)
    task = make_task(loaded.config.env, {}, loaded.config.wrappers)
    inside, policy = clew.Policy(loaded.agent), clew.load_policy(path)
    files = clew.load_policy(path / "export")
    ends = 0
    with task.open(1, seed=2) as stream:  # type: ignore[attr-defined]
        now, earned = stream.reset(), 0.0
        for _ in range(30):
            seen = {name: array[0] for name, array in now.observation.items()}
            start, ended = bool(now.start[0]), bool(seen["previous_ended"][0])
            action = inside(seen, start=start)
            for other in (policy, files):
                chosen = other(seen["observation"], start=start, reward=earned, ended=ended)
                assert chosen == action
            now, ends = stream.step(np.array([action])), ends + ended
            earned = float(now.own_reward[0])
    assert ends == 8
    assert set(clew.evaluate(path, episodes=3).pooled) == set(task.metric_names)


@pytest.mark.slow
def test_a_resumed_run_of_trials_is_the_undisturbed_one(tmp_path: Path) -> None:
    """It is bit for bit the same, even from within a trial: rollouts of 8 steps, trials of 12."""
    options = {"size": 3, "time_limit": 4}
    whole = trained(tmp_path, "dark_room", env_options=options, name="whole", steps=192)
    half = trained(tmp_path, "dark_room", env_options=options, name="half", steps=96)
    clew.resume_run(half, steps=192, progress=Quiet())
    kept = ("return", "return_1", "return_2", "return_3", "found", "value_loss")
    rows = [[[r[name] for name in kept] for r in clew.read_metrics(p)] for p in (whole, half)]
    np.testing.assert_array_equal(*(np.array(found, float) for found in rows))
    found = [load_agent(path).agent for path in (whole, half)]
    same = jax.tree.map(np.array_equal, *found)
    assert all(jax.tree.leaves(same))
    assert run(["export", str(whole), "--episodes", "2"]) == 0
