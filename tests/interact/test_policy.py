"""A policy that gets observations in the environment's form acts like evaluation."""

from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew.agents.network import NetworkConfig, make_agent
from clew.deploy.policy import trained_wrappers
from clew.envs.base import Environment, Transition
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact.compiled_task import CompiledTask
from clew.interact.task import PlayConfig
from clew.run.build import make_task
from clew.run.config import TrainConfig
from clew.run.load import load_agent
from clew.run.progress import Quiet
from slow_cases import fast_only

EVERYTHING = WrapperConfig(
    keep=(2, 0, 3),
    normalise_observations=True,
    previous=True,
    normalise_rewards=True,
    reward_scale=0.5,
    reward_clip=0.4,
)
LOG: list[tuple[Any, Any, float]] = []
"""Events in the environments: the action (None for a reset), observation and reward."""


class Logged(gymnasium.Wrapper):
    """An environment that logs its events."""

    def reset(self, **options: Any) -> Any:
        observation, info = self.env.reset(**options)
        LOG.append((None, observation, 0.0))
        return observation, info

    def step(self, action: Any) -> Any:
        step = self.env.step(action)
        LOG.append((action, step[0], float(step[1])))
        return step


def cartpole() -> gymnasium.Env:
    """Short episodes."""
    return Logged(gymnasium.make("CartPole-v1", max_episode_steps=30))


class Shifted(gymnasium.Env):
    """Three buttons, counted from 5, and a switch; observes noise and integers from 4 on."""

    observation_space = spaces.Dict(
        {"x": spaces.Box(-9.0, 9.0, (2,)), "n": spaces.Discrete(3, start=4)}
    )
    action_space = spaces.MultiDiscrete([3, 2], start=[5, 0])

    def __init__(self) -> None:
        self.time = 0

    def observe(self) -> dict[str, Any]:
        """Numbers that depend on the seed."""
        return {"x": self.np_random.normal(3.0, 2.0, 2).astype(np.float32), "n": 4 + self.time % 3}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.time += 1
        return self.observe(), float(action[0] - 5 + action[1]), self.time == 9, False, {}


def shifted() -> gymnasium.Env:
    """Actions and observations that do not start at 0."""
    return Logged(Shifted())


def trained(folder: Path, env: str, **changes: Any) -> Path:
    """A run of three updates."""
    settings: dict[str, Any] = {
        "memory": "gru",
        "memory_options": {"hidden_size": 8},
        "a2c": clew.A2CConfig(num_envs=4, rollout_length=16, learning_rate=0.03),
        "steps": 3 * 4 * 16,
        "run_dir": str(folder),
    }
    return clew.train(TrainConfig(env=env, **{**settings, **changes}), progress=Quiet()).path


CASES = {
    "cartpole": EVERYTHING,
    "shifted": WrapperConfig(normalise_observations=True, previous=True, normalise_rewards=True),
}


@pytest.mark.parametrize("name", fast_only(CASES, "shifted"))
def test_it_chooses_what_evaluation_does(name: str, tmp_path: Path) -> None:
    """Over whole episodes, although it gets only what the environment itself returns."""
    path = trained(tmp_path, f"test_policy:{name}", wrappers=CASES[name])
    policy, played = clew.load_policy(path), 0
    for seed in range(3):
        LOG.clear()
        clew.evaluate(path, episodes=1, seed=seed)
        for before, after in zip(LOG, LOG[1:], strict=False):
            action, observation, reward = before
            start = action is None
            chosen = policy(observation, start=start, reward=None if start else reward)
            if after[0] is None:  # an episode's last observation, after which nothing is chosen
                continue
            np.testing.assert_array_equal(chosen, after[0])
            played += 1
    assert played > 20
    assert policy.outputs is not None and policy.outputs["value"].shape == (1,)
    with pytest.raises(UserError, match="sees its previous reward"):
        policy(LOG[0][1])
    first = policy(LOG[0][1], start=True)
    policy.reset()
    np.testing.assert_array_equal(policy(LOG[0][1]), first)


@pytest.mark.slow
def test_a_task_in_jax_too(tmp_path: Path) -> None:
    """The entries that wrappers add are rebuilt from the task's own observations."""
    wrappers = WrapperConfig(previous=True, reward_scale=0.5)
    path = trained(tmp_path, "tmaze", env_options={"corridor_length": 3}, wrappers=wrappers)
    loaded = load_agent(path)
    env, inside = make_task(loaded.config).require_stream().env, clew.Policy(loaded.agent)
    policy, key = clew.load_policy(path), jax.random.key(0)
    state, seen = jax.jit(env.reset)(key)
    start, reward, step = True, None, jax.jit(env.step)
    for _ in range(12):
        action = inside(seen, start=start)
        assert policy(seen["observation"], start=start, reward=reward) == action
        state, told = step(state, np.int32(action), key)
        if told.terminated or told.truncated:
            break
        seen, start, reward = told.observation, False, float(told.reward) / 0.5
    assert not start


class Scalar(Environment):
    """Takes one number from -1 to 1 without an axis; its state has a random key."""

    observation_size = 1
    num_actions = 1
    metric_names = ()

    @property
    def action_space(self) -> spaces.Space:
        return spaces.Box(-1.0, 1.0, ())

    def reset(self, key: Any) -> Any:
        return (jnp.zeros((), jnp.int32), key), jnp.ones(1)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        time, own = state
        over = time == 3
        no = jnp.zeros((), jnp.bool_)
        return (time + 1, own), Transition(jnp.ones(1), action, over, no, {})


class Counted(Scalar):
    """Takes two choices that are counted from 1."""

    @property
    def action_space(self) -> spaces.Space:
        return spaces.MultiDiscrete([2, 3], start=[1, 1])

    def step(self, state: Any, action: Any, key: Any) -> Any:
        after, then = super().step(state, jnp.zeros(()), key)
        return after, then


def agent_of(task: CompiledTask) -> clew.Agent:
    return make_agent(
        "gru",
        {"hidden_size": 4},
        observation_space=task.observation_space,
        action_space=task.action_space,
        network=NetworkConfig(head_size=0),
        key=jax.random.key(0),
    )


def test_an_action_without_an_axis() -> None:
    """In a policy and in a recording it is a number of the Box."""
    task = CompiledTask("scalar", Scalar())
    agent = agent_of(task)
    action = clew.Policy(agent)(np.ones(1, np.float32), start=True)
    assert isinstance(action, np.ndarray) and action.shape == () and action % 1 != 0
    recording = next(task.recordings(agent, PlayConfig()))
    np.testing.assert_allclose(recording.actions[0], action, rtol=1e-6)


def test_it_shows_the_outputs_behind_its_action() -> None:
    """Value and distribution of `Agent.step`; forbidden actions have logits of -infinity."""
    task = CompiledTask("permutation", clew.make_env("permutation", num_cards=3))
    agent = agent_of(task)
    policy = clew.Policy(agent, num_envs=2, greedy=False)
    assert policy.outputs is None
    mask = np.array([[True, True, False, True], [False, True, True, False]])
    seen = {"observation": np.eye(2, 7, dtype=np.float32), "action_mask": mask}
    actions = policy(seen, start=True)
    state, start = agent.init_state(), jnp.array(True)
    expected = [
        agent.step(state, jax.tree.map(lambda x, i=i: x[i], seen), start)[1] for i in (0, 1)
    ]
    assert policy.outputs is not None
    logits, values = policy.outputs["logits"], policy.outputs["value"]
    np.testing.assert_allclose(values, [found.value for found in expected], rtol=1e-5)
    np.testing.assert_allclose(
        logits[mask], np.stack([f.logits for f in expected])[mask], rtol=1e-5
    )
    assert (logits[~mask] == -np.inf).all() and mask[[0, 1], actions].all()


def test_several_choices_that_are_not_counted_from_0() -> None:
    """The previous action is shown as in training."""
    task = CompiledTask("counted", Counted(), WrapperConfig(previous_action=True))
    seen = trained_wrappers(task.adapter())
    taken, starts = np.array([[2, 3]]), np.array([False])
    np.testing.assert_array_equal(seen.act(taken), taken)
    shown = seen.observe(np.ones(1, np.float32), taken, starts)["previous_action"][0]
    stream = task.require_stream()
    state, _ = stream.reset(jax.random.key(0))
    _, then = stream.step(state, jnp.array([2, 3]), jax.random.key(1))
    np.testing.assert_array_equal(shown, then.observation["previous_action"])


def test_a_film_has_choices_as_the_task_takes_them() -> None:
    task = CompiledTask("counted", Counted())
    agent = agent_of(task)
    actions = [clew.Policy(agent)(np.ones(1, np.float32), start=True)]
    recording = next(task.recordings(agent, PlayConfig()))
    np.testing.assert_array_equal(recording.actions[:1], actions)
