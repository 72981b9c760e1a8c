"""One policy plays several environments like that many policies, and its state can be passed on."""

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import clew
from clew.agents.network import NetworkConfig, make_agent
from clew.deploy.policy import adapter_of_spaces, trained_wrappers
from clew.envs.spaces import ActionMask, with_mask
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact.policy import Policy
from clew.run.progress import Quiet

COUNT, TIME = 3, 12
SEEN = spaces.Dict({"x": spaces.Box(-9.0, 9.0, (2,)), "n": spaces.Discrete(3, start=4)})
SWITCHES = spaces.MultiDiscrete([3, 2], start=[5, 0])
RNG = np.random.default_rng(0)
STARTS = RNG.random((TIME, COUNT)) < 0.3
REWARDS = RNG.normal(size=(TIME, COUNT)).astype(np.float32)
OBSERVATIONS = {
    "x": RNG.normal(size=(TIME, COUNT, 2)).astype(np.float32),
    "n": RNG.integers(4, 7, (TIME, COUNT)),
}


class Board(gymnasium.Env):
    """Observes a Dict, and takes choices that are not counted from 0."""

    observation_space, action_space = SEEN, SWITCHES

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), float(action[1]), False, False, {}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one update whose agent sees its previous step."""
    config = clew.TrainConfig(
        env="test_side_by_side:Board",
        memory="gru",
        memory_options={"hidden_size": 8},
        a2c=clew.A2CConfig(num_envs=2, rollout_length=8),
        wrappers=WrapperConfig(normalise_observations=True, previous=True, normalise_rewards=True),
        steps=16,
        run_dir=str(tmp_path_factory.mktemp("runs")),
    )
    return clew.train(config, progress=Quiet()).path


def loaded(path: Path, **options: Any) -> Any:
    """The policy of a run."""
    return clew.load_policy(path, **options)


def seen(time: int, row: Any = slice(None)) -> dict[str, Any]:
    """Observations of all environments, or of one of them, at one time."""
    return {name: values[time, row] for name, values in OBSERVATIONS.items()}


def played(policy: Any, times: range, row: Any = slice(None)) -> np.ndarray:
    """The actions of a policy."""
    how = ({"start": STARTS[t, row], "reward": REWARDS[t, row]} for t in times)
    return np.stack([policy(seen(t, row), **h) for t, h in zip(times, how, strict=True)])


@pytest.mark.parametrize("greedy", [True, False])
def test_each_environment_is_played_as_by_a_policy_of_its_own(path: Path, greedy: bool) -> None:
    together = loaded(path, num_envs=COUNT, greedy=greedy, seed=7)
    actions = played(together, range(TIME))
    assert actions.shape == (TIME, COUNT, 2) and np.ptp(actions, axis=0).any() or greedy
    for row in range(COUNT):
        alone = loaded(path, greedy=greedy, seed=7 + row)
        np.testing.assert_array_equal(played(alone, range(TIME), row), actions[:, row])
        own: Any = jax.tree.map(lambda leaf, row=row: leaf[row], together.state)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), alone.state, own)


@pytest.mark.parametrize("count", [None, COUNT])
def test_a_state_is_kept_and_gone_on_from(path: Path, count: int | None) -> None:
    """In another policy, through a file, and in the middle of episodes."""
    row = slice(None) if count else 0
    policy, other = (loaded(path, num_envs=count, greedy=False) for _ in range(2))
    played(policy, range(5), row)
    kept = pickle.dumps(policy.state)
    actions = played(policy, range(5, TIME), row)
    other.state = pickle.loads(kept)
    np.testing.assert_array_equal(played(other, range(5, TIME), row), actions)
    policy.state = other.state._replace(fresh=np.zeros_like(other.state.fresh))
    jax.tree.map(np.testing.assert_array_equal, policy.state, other.state)
    policy.state.time[...] = 99  # a copy
    jax.tree.map(np.testing.assert_array_equal, policy.state, other.state)


def test_a_state_of_another_policy_is_refused(path: Path) -> None:
    one, three = loaded(path), loaded(path, num_envs=COUNT)
    with pytest.raises(UserError, match=r"\.memory.* is float32\[3, 8\], expected float32\[8\]"):
        one.state = three.state
    with pytest.raises(UserError, match=r"\.memory.* is missing, expected float32\[3, 8\]"):
        three.state = three.state._replace(memory=None)
    with pytest.raises(UserError, match=r"\.time is float64\[3\], expected int32\[3\]"):
        three.state = three.state._replace(time=np.zeros(3))
    with pytest.raises(UserError, match=r"\.key is key<fry>\[\], expected uint32\[2\]"):
        one.state = one.state._replace(key=jax.random.key(1))


def test_a_state_with_nan_is_refused_and_changes_nothing(path: Path) -> None:
    policy = loaded(path)
    played(policy, range(2), 0)
    before, broken = policy.state, policy.state
    broken.memory[0][5] = np.nan
    with pytest.raises(UserError, match=r"the state has NaN: \.memory\[0\] at \[5\], expected num"):
        policy.state = broken
    jax.tree.map(np.testing.assert_array_equal, policy.state, before)
    policy.state = before._replace(fresh=True)  # a bool of Python's fits too
    assert policy.state.fresh


def test_one_environment_of_several_is_reset(path: Path) -> None:
    policy, fresh = (loaded(path, num_envs=COUNT) for _ in range(2))
    played(policy, range(5))
    before = policy.state
    policy.reset(1)
    for now, was, first in zip(
        jax.tree.leaves(policy.state.memory),
        jax.tree.leaves(before.memory),
        jax.tree.leaves(fresh.state.memory),
        strict=True,
    ):
        np.testing.assert_array_equal(now[[0, 2]], was[[0, 2]])
        np.testing.assert_array_equal(now[1], first[1])
    actions = policy(seen(5), reward=REWARDS[5])
    np.testing.assert_array_equal(actions[1], fresh(seen(5))[1])
    policy.state = before
    flags = np.array([False, True, False])
    np.testing.assert_array_equal(policy(seen(5), start=flags, reward=REWARDS[5]), actions)
    policy.reset(flags)
    policy.reset()
    assert policy.state.fresh.all()
    for wrong in (COUNT, "all"):
        with pytest.raises(UserError, match="reset of .*, expected some of 3 environments"):
            policy.reset(wrong)


def test_what_does_not_fit_is_refused_and_changes_nothing(path: Path) -> None:
    policy = loaded(path, num_envs=COUNT)
    played(policy, range(2))
    before = policy.state
    wrong: dict[str, tuple[Any, dict[str, Any]]] = {
        r"observation n has shape \[\], expected numbers of shape \[3\]": (seen(2, 0), {}),
        r"observation n is 7 at \[2\], expected a whole number from 4 to 6": (
            {**seen(2), "n": np.array([4, 5, 7])},
            {},
        ),
        "start must be 3 values, one for each environment": (seen(2), {"start": [True, False]}),
        "reward must be 3 values, one for each environment": (seen(2), {"reward": "1.0"}),
        "sees its previous reward": (seen(2), {"start": [True, True, False]}),
    }
    for message, (observation, how) in wrong.items():
        with pytest.raises(UserError, match=message):
            policy(observation, **how)
    jax.tree.map(np.testing.assert_array_equal, policy.state, before)
    for number in (0, "3"):
        with pytest.raises(UserError, match="num_envs must be an integer of at least 1"):
            loaded(path, num_envs=number)


def test_masks_beside_observations_have_a_row_for_each_environment() -> None:
    """This holds for an agent without wrappers too."""
    space = with_mask(spaces.Box(-1.0, 1.0, (2,)), ActionMask(spaces.Discrete(4)))
    agent = make_agent(
        "none",
        {},
        observation_space=space,
        action_space=spaces.Discrete(4),
        network=NetworkConfig(head_size=0),
        key=jax.random.key(0),
    )
    adapter = adapter_of_spaces(space, spaces.Discrete(4))
    policy = Policy(agent, wrappers=trained_wrappers(adapter, COUNT), num_envs=COUNT)
    observations, masks = np.zeros((COUNT, 2)), np.eye(4, dtype=np.int8)[[2, 0, 3]]
    assert policy(observations, action_mask=masks).tolist() == [2, 0, 3]
    with pytest.raises(UserError, match="allows no action for environment 1"):
        policy(observations, action_mask=masks * [[1], [0], [1]])
    with pytest.raises(UserError, match=r"shape \[4\], expected 3 masks"):
        policy(observations, action_mask=masks[0])
    plain = Policy(agent, num_envs=COUNT)
    inside = {"observation": observations.astype(np.float32), "action_mask": masks != 0}
    assert plain(inside).tolist() == [2, 0, 3]
    with pytest.raises(UserError, match=r"shape \[3\], got \[2\]"):
        plain({**inside, "observation": np.zeros(2)})
