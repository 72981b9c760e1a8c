"""Runs whose critic sees more than the actor, and what is done with their agents."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import Env, spaces
from test_async_equal import assert_equal

import clew
from clew.errors import UserError
from clew.inspect import Questions
from clew.inspect.run import inspect_run
from clew.run.folder import read_config
from clew.run.progress import Quiet
from slow_cases import fast_only
from small_async import by_turns
from small_run import assert_same_run, small_config

WHOLE = clew.WrapperConfig(keep=(0, 2), noise=0.1, whole=True)
CRITIC = clew.NetworkConfig(critic_only=("whole",), head_size=4)


class Hidden(Env):
    """Shows the second number of its state, or only its sign, and as much of the state as asked."""

    action_space = spaces.Discrete(2)

    def __init__(self, state: int = 2, numbers: bool = True):
        self.numbers, self.shown = numbers, state
        shown = {"state": spaces.Box(-9.0, 9.0, (state,), np.float32)} if state else {}
        seen = spaces.Box(-9.0, 9.0, (1,), np.float32) if numbers else spaces.Discrete(2)
        self.observation_space = spaces.Dict({"observation": seen, **shown})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """A random state."""
        super().reset(seed=seed)
        self.time, self.state = 0, self.np_random.normal(size=2).astype(np.float32)
        return self.seen(), {}

    def step(self, action: int) -> Any:
        """Moves it."""
        self.time, self.state = self.time + 1, self.state * 0.9
        return self.seen(), float(action == (self.state[0] > 0)), self.time == 4, False, {}

    def seen(self) -> dict[str, Any]:
        """The present observation."""
        number = self.state[1:] if self.numbers else int(self.state[1] > 0)
        return {"observation": number} | ({"state": self.state[: self.shown]} if self.shown else {})


def hosted(folder: Path, name: str = "run", **changes: Any) -> clew.TrainConfig:
    """Four updates on `Hidden`."""
    ppo = clew.PPOConfig(num_envs=2, rollout_length=8, sequence_length=8, minibatches=1, epochs=1)
    settings: dict[str, Any] = {
        "env": f"{__name__}:Hidden",
        "network": clew.NetworkConfig(critic_only=("state",), head_size=4),
        "wrappers": clew.WrapperConfig(normalise_observations=True),
        "ppo": ppo,
        "steps": 64,
        "memory_options": {"hidden_size": 4},
    }
    return clew.TrainConfig(
        **{**settings, "memory": "gru", "run_dir": str(folder), "name": name, **changes}
    )


def in_jax(folder: Path, name: str = "run", **changes: Any) -> clew.TrainConfig:
    """Four updates on a T-Maze with hidden numbers."""
    settings = {"wrappers": WHOLE, "network": CRITIC, "steps": 4 * 128, "log_every": 1}
    return small_config(folder, name, **{**settings, **changes})


@pytest.fixture(scope="module", params=fast_only([True, False], True))
def run(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on `Hidden`, where the actor sees a number or a category."""
    config = hosted(tmp_path_factory.mktemp("hosted"), env_options={"numbers": request.param})
    return clew.train(config, progress=Quiet()).path


def test_it_trains_resumes_and_plays_a_task_in_jax(tmp_path: Path) -> None:
    whole = clew.train(in_jax(tmp_path, "whole"), progress=Quiet()).path
    cut = clew.train(in_jax(tmp_path, "cut", steps=2 * 128), progress=Quiet()).path
    clew.resume_run(cut, steps=4 * 128, progress=Quiet())
    assert_same_run(whole, cut)
    assert clew.evaluate(whole, episodes=2, max_steps=300).episodes == 2
    policy = clew.load_policy(whole, seed_index=1)
    policy(np.zeros(16, np.float32), start=True)
    assert policy.outputs is not None and set(policy.outputs) == {"logits"}


def test_a_policy_goes_without_the_entries(run: Path, tmp_path: Path) -> None:
    policy, exported = clew.load_policy(run), clew.load_policy(clew.export(run, tmp_path).folder)
    env = Hidden(**read_config(run).env_options)
    seen, _ = env.reset(seed=0)
    for time in range(4):
        bare = {"observation": seen["observation"]}
        actions = {policy(seen, start=time == 0), exported(bare, start=time == 0)}
        assert len(actions) == 1
        seen, *_ = env.step(actions.pop())
    assert policy.outputs is not None and "value" not in policy.outputs
    with pytest.raises(UserError, match="known: observation"):
        policy({"state": env.state})
    with pytest.raises(UserError, match="value needs the entries .* only its critic reads"):
        clew.export(run, tmp_path / "value", value=True)


def test_it_is_evaluated_where_the_entries_are_missing(run: Path) -> None:
    if not read_config(run).env_options["numbers"]:
        pytest.skip("normalise_observations has nothing to normalise there")
    here = clew.evaluate(run, episodes=4)
    assert clew.evaluate(run, episodes=4, env_options={"state": 0}).pooled == here.pooled
    with pytest.raises(UserError, match=r"observation/state was float32\[2\] and is float32\[1\]"):
        clew.evaluate(run, env_options={"state": 1})


@pytest.mark.slow
def test_an_actor_in_a_process_by_turns_equals_sync(tmp_path: Path) -> None:
    """The critic's entries, too, come through shared memory."""
    config = hosted(tmp_path, algorithm="ppo", runner="async", asynchronous=by_turns(actors=1))
    assert_equal(config)


@pytest.mark.slow
def test_it_is_inspected(run: Path) -> None:
    found = inspect_run(run, Questions(influence_episodes=1), episodes=2)
    assert found is not None


@pytest.mark.parametrize("algorithm", ["pqn", "r2d2", "sac"])
def test_other_learners_refuse_it(algorithm: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a2c or ppo .*critic_only=\('state',\)"):
        clew.train(hosted(tmp_path, algorithm=algorithm, ppo=clew.PPOConfig(), steps=10_000))


def test_the_whole_observation_is_for_the_critic_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"critic_only must name 'whole', got \(\)"):
        clew.train(in_jax(tmp_path, network=clew.NetworkConfig()))
    with pytest.raises(UserError, match="whole adds nothing without keep, noise or flicker"):
        clew.train(in_jax(tmp_path, wrappers=clew.WrapperConfig(whole=True)))
