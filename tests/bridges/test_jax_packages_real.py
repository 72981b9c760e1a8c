"""Tasks of xminigrid, craftax, brax and jumanji (make test-jaxenvs) equal the packages' own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import clew
from clew import A2CConfig
from clew.agents.learners.ppo import PPOConfig
from clew.bridges.make import env_options, make_env
from clew.envs import Environment
from clew.errors import UserError
from small_run import Watch

pytestmark = [
    pytest.mark.usefixtures("ordinary_promotion"),
    pytest.mark.filterwarnings("ignore"),  # the packages warn about each other
]
STEPS = 1000


class Theirs(NamedTuple):
    """A package's own loop, one step at a time."""

    reset: Callable[[Any], tuple[Any, Any]]
    """Maps a key to observation, state."""
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any, Any]]
    """Maps state, action, key to observation, state, reward, terminated, truncated."""


def of_xminigrid(place: str, options: dict[str, Any]) -> Theirs:
    env, params = pytest.importorskip("xminigrid").make(place, **options)

    def reset(key: Any) -> Any:
        opened = env.reset(params, key)
        return opened.observation.ravel(), opened

    def step(state: Any, action: Any, key: Any) -> Any:
        after = env.step(params, state, action)
        ended = after.discount == 0
        cut = (after.state.step_num == params.max_steps) & ~ended
        assert after.step_type.shape == ()
        return after.observation.ravel(), after, after.reward, ended, cut

    return Theirs(jax.jit(reset), jax.jit(step))


def of_craftax(place: str, options: dict[str, Any]) -> Theirs:
    made = pytest.importorskip("craftax.craftax_env")
    env = made.make_craftax_env_from_name(place, auto_reset=False)
    params = env.default_params.replace(**options)

    def step(state: Any, action: Any, key: Any) -> Any:
        seen, after, reward, over, _ = env.step(key, state, action, params)
        dead = after.player_health <= 0
        return seen, after, reward, dead, over & ~dead

    return Theirs(lambda key: env.reset(key, params), jax.jit(step))


def of_brax(place: str, options: dict[str, Any]) -> Theirs:
    env = pytest.importorskip("brax.envs").create(place, auto_reset=False, **options)

    def reset(key: Any) -> Any:
        state = env.reset(key)
        return state.obs, state

    def step(state: Any, action: Any, key: Any) -> Any:
        after = env.step(state, action)
        cut = after.info["truncation"] > 0
        return after.obs, after, after.reward, (after.done > 0) & ~cut, cut

    return Theirs(jax.jit(reset), jax.jit(step))


def of_jumanji(place: str, options: dict[str, Any]) -> Theirs:
    env = pytest.importorskip("jumanji").make(place, **options)

    def seen(observation: Any) -> dict[str, Any]:
        return {k: v for k, v in observation._asdict().items() if k != "action_mask"}

    def reset(key: Any) -> Any:
        state, opened = env.reset(key)
        return seen(opened.observation), (state, opened.observation.action_mask)

    def step(state: Any, action: Any, key: Any) -> Any:
        if place.startswith("Minesweeper"):
            action = jnp.stack([action // 10, action % 10])
        after, given = env.step(state[0], action)
        ended = given.last() & (given.discount == 0)
        kept = after, given.observation.action_mask
        return seen(given.observation), kept, given.reward, ended, given.last() & ~ended

    return Theirs(jax.jit(reset), jax.jit(step))


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "xminigrid:MiniGrid-MemoryS8": (of_xminigrid, {"max_steps": 30}),
    "xminigrid:XLand-MiniGrid-R1-9x9": (of_xminigrid, {"max_steps": 50, "view_size": 5}),
    "craftax:Craftax-Classic-Symbolic-v1": (of_craftax, {"max_timesteps": 150}),
    "brax:hopper": (of_brax, {"episode_length": 12}),
    "jumanji:Snake-v1": (of_jumanji, {"num_rows": 5, "num_cols": 5}),
    "jumanji:Minesweeper-v0": (of_jumanji, {}),
}


def action_of(env: Environment, state: Any, key: Any) -> Any:
    """A random action among those that are allowed."""
    space = env.action_space
    if space.shape:
        return jax.random.uniform(key, space.shape, minval=-1)
    mask = env.action_mask(state)
    allowed = jnp.zeros(env.num_actions) if mask is None else jnp.where(mask, 0.0, -jnp.inf)
    return jax.random.categorical(key, allowed)


@pytest.mark.parametrize("name", CASES)
def test_a_thousand_steps_are_those_of_the_package(name: str) -> None:
    own_loop, options = CASES[name]
    theirs = own_loop(name.partition(":")[2], options)
    env = make_env(name, **options)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    choose = jax.jit(lambda state, key: action_of(env, state, key))
    keys, over, ends = iter(jax.random.split(jax.random.key(0), 3 * STEPS)), True, [0, 0]
    state: Any = None
    other: Any = None
    for _ in range(STEPS):
        if over:
            key = next(keys)
            (state, seen), (expected, other) = reset(key), theirs.reset(key)
            assert_seen(seen, expected)
        if name.startswith("jumanji"):
            allowed = np.ravel(other[1])
            np.testing.assert_array_equal(env.action_mask(state), allowed | ~allowed.any())
        action, key = choose(state, next(keys)), next(keys)
        state, found = step(state, action, key)
        expected, other, reward, ended, cut = theirs.step(other, action, key)
        assert_seen(found.observation, expected)
        np.testing.assert_allclose(found.reward, reward, atol=1e-4)
        assert (bool(found.terminated), bool(found.truncated)) == (bool(ended), bool(cut))
        ends[0], ends[1] = ends[0] + bool(ended), ends[1] + bool(cut)
        over = bool(ended) or bool(cut)
    assert sum(ends) > 3
    assert (ends[1] > 0) == (not name.startswith("jumanji")), ends


def assert_seen(found: Any, expected: Any) -> None:
    """Checks that observations are equal up to rounding, in any types."""
    if not isinstance(found, dict):
        found, expected = {"": found}, {"": expected}
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(value, np.asarray(expected[name], float), atol=1e-4)


TRAINED = {
    "xminigrid:MiniGrid-MemoryS8": {},
    "craftax:Craftax-Classic-Symbolic-v1": {"max_timesteps": 50},
    "brax:inverted_pendulum": {"episode_length": 50},
    "jumanji:Snake-v1": {"num_rows": 5, "num_cols": 5},
}


@pytest.mark.parametrize("name", TRAINED)
def test_an_agent_is_trained_and_evaluated(name: str, tmp_path: Any) -> None:
    pytest.importorskip(name.partition(":")[0])
    learner: dict[str, Any] = {"algorithm": "a2c", "a2c": A2CConfig(4, 16)}
    if name.startswith("brax"):
        learner = {"algorithm": "ppo", "ppo": PPOConfig(4, 16, 16, minibatches=2)}
    config = clew.TrainConfig(
        env=name,
        env_options=TRAINED[name],
        memory="gru",
        memory_options={"hidden_size": 8, "num_layers": 1},
        steps=512,
        run_dir=str(tmp_path),
        name="run",
        **learner,
    )
    result = clew.train(config, progress=Watch())
    assert result.summary["steps"] == 512
    assert np.isfinite(clew.evaluate(result.path, episodes=2).pooled["return"]).all()


def test_positions_and_velocities_are_the_two_parts_of_an_observation() -> None:
    pytest.importorskip("brax")
    key = jax.random.key(0)
    whole, positions, velocities = (
        make_env("brax:hopper", shown=shown).reset(key)[1]
        for shown in ("all", "positions", "velocities")
    )
    assert positions.shape == (5,) and velocities.shape == (6,)
    np.testing.assert_array_equal(jnp.concatenate([positions, velocities]), whole)
    with pytest.raises(UserError, match="brax:humanoid observes more than positions and"):
        make_env("brax:humanoid", shown="positions")
    with pytest.raises(UserError, match="did you mean 'positions'"):
        make_env("brax:hopper", shown="position")


def test_a_grid_has_a_picture() -> None:
    pytest.importorskip("xminigrid")
    env = make_env("xminigrid:MiniGrid-MemoryS16")
    picture = env.render_image(*env.reset(jax.random.key(0)))
    assert picture is not None and picture.ndim == 3 and picture.dtype == np.uint8


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("xminigrid:MiniGrid-MemoryS9", {}, "did you mean 'MiniGrid-MemoryS8'"),
        ("xminigrid:MiniGrid-MemoryS8", {"max_step": 3}, "did you mean 'max_steps'"),
        ("craftax:Craftax-Symbolic", {}, "did you mean 'Craftax-Symbolic-v1'"),
        ("craftax:Craftax-Symbolic-v1", {"day": 3}, "option of craftax:.*known: .*day_length"),
        ("brax:ants", {}, "did you mean 'ant'"),
        ("brax:ant", {"episode_length": 0}, "episode_length must be an integer of at least 1"),
        ("jumanji:Snake-v2", {}, "did you mean 'Snake-v1'"),
        ("jumanji:Connector-v3", {}, "one number|supported is one choice"),
        ("jumanji:Snake-v1", {"rows": 3}, "option of jumanji:Snake-v1.*'num_rows'"),
    ],
)
def test_what_cannot_be_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    pytest.importorskip(name.partition(":")[0])
    with pytest.raises(UserError, match=message):
        make_env(name, **options)


def test_options_have_their_defaults() -> None:
    pytest.importorskip("jumanji")
    assert env_options("jumanji:Snake-v1") == {"num_rows": 12, "num_cols": 12, "time_limit": 4000}
