"""The pixel maze equals plain loops: frames, movement and draws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import clew
from clew.envs import PixelMaze
from clew.errors import UserError
from oracles import pixel_maze as oracle
from slow_cases import fast_only


def opened(env: PixelMaze, seed: int) -> tuple[Any, Any]:
    return jax.jit(env.reset)(jax.random.key(seed))


def unseen(env: PixelMaze) -> Any:
    """Its steps without rendering, which is nearly all of the work."""

    def step(state: Any, action: int, key: Any) -> tuple[Any, Any]:
        after, found = env.step(state, action, key)
        return after, found._replace(observation=None)

    return jax.jit(step)


@pytest.mark.parametrize("size", fast_only([9, 15], 9))
def test_a_walk_is_seen_as_by_a_plain_ray_caster(size: int) -> None:
    """Rounding may change a ray that meets a corner, and single pixels at other edges."""
    env = PixelMaze(size)
    step, look, random = unseen(env), jax.jit(env.step), np.random.default_rng(size)
    for seed in range(2):
        state, seen = opened(env, seed)
        for _ in range(5):
            arguments = (state.walls, state.kinds, state.balls, state.place, state.heading)
            numbers = [np.asarray(x) for x in arguments[:3]]
            place, heading = np.asarray(state.place, float), float(state.heading)
            expected = oracle.picture(*numbers, place, heading, int(state.target))
            off = (np.abs(np.asarray(seen, float) - expected).max(axis=-1) > 1).sum(axis=0)
            assert (off > 2).sum() <= 1 and off[off <= 2].sum() < 40, off
            for action in random.choice([1, 1, 2, 3, 4, 5], size=6):
                state, _ = step(state, int(action), jax.random.key(0))
            state, found = look(state, int(random.choice([1, 2, 3])), jax.random.key(0))
            seen = found.observation


def test_a_walk_goes_as_in_plain_loops() -> None:
    """Walls stop, turns come first, and touching the wanted ball makes another one wanted."""
    env = PixelMaze(9, num_balls=4, max_steps=300)
    assert env.shortest == 300  # nothing else ends an episode
    step, random, touched = unseen(env), np.random.default_rng(0), 0
    for seed in range(6):
        state, _ = opened(env, seed)
        walls, balls = np.asarray(state.walls), np.asarray(state.balls, float)
        for t in range(60):
            before, target = state, int(state.target)
            if t % 20 == 0:  # next to the wanted ball, whose square is free
                before = before._replace(place=state.balls[target] - jnp.asarray([0.25, 0.0]))
            place, heading = np.asarray(before.place, float), float(before.heading)
            action = int(random.integers(-1, 7))
            state, found = step(before, action, jax.random.key(t))
            place, heading = oracle.walked(walls, place, heading, action)
            np.testing.assert_allclose(state.place, place, atol=1e-5)
            np.testing.assert_allclose(np.cos(state.heading), np.cos(heading), atol=1e-5)
            away = np.hypot(*(balls[target] - place))
            assert bool(found.reward) == (away < 0.6)
            assert (int(state.target) != target) == (away < 0.6)
            assert not found.terminated and bool(found.truncated) == (int(state.time) >= 300)
            touched += away < 0.6
    assert touched >= 10


def reachable(walls: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The free squares that are connected with a place's."""
    found = np.zeros_like(walls)
    found[int(place[1]), int(place[0])] = True
    for _ in range(walls.size):
        grown = found.copy()
        for axis, by in ((0, 1), (0, -1), (1, 1), (1, -1)):
            grown |= np.roll(found, by, axis) & ~walls
        if (grown == found).all():
            break
        found = grown
    return found


def test_every_ball_can_be_reached_and_none_shares_a_square() -> None:
    env = PixelMaze(9)
    states, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 100))
    unreachable, kinds = 0, set()
    for state in zip(*map(np.asarray, states), strict=True):
        walls, _, balls, place, heading, target, _ = state
        assert walls[[0, -1]].all() and walls[:, [0, -1]].all()
        squares = {tuple(map(int, x)) for x in [*balls, place]}
        assert len(squares) == 4
        found = reachable(walls, place)
        unreachable += sum(not found[int(y), int(x)] for x, y in balls)
        kinds.add((round(float(heading) / np.pi * 6), int(target)))
    assert unreachable <= 3  # the carver rarely leaves a square isolated
    assert {t for _, t in kinds} == {0, 1, 2} and len({h for h, _ in kinds}) == 12


def test_balls_are_asked_for_as_often() -> None:
    env = PixelMaze(9)
    state, _ = opened(env, 0)
    state = state._replace(place=state.balls[0], target=jnp.int32(0))
    many = jax.vmap(lambda key: env.step(state, jnp.int32(0), key)[0].target)
    targets = np.asarray(jax.jit(many)(jax.random.split(jax.random.key(0), 2000)))
    np.testing.assert_allclose(np.bincount(targets, minlength=3) / 2000, [0, 0.5, 0.5], atol=0.04)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 10}, "size must be odd, got 10"),
        ({"size": 3}, "size must be an integer of at least 5"),
        ({"size": 7}, "give num_balls and max_steps: only sizes 9, 11, 13, 15"),
        ({"num_balls": 7}, "num_balls must be at most 6, got 7"),
        ({"max_steps": 0}, "max_steps must be an integer"),
        ({"size": 5, "num_balls": 4, "max_steps": 9}, "num_balls must be at most 3, got 4"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        clew.make_env("pixel_maze", **options)


def test_pictures_show_what_is_seen_and_the_maze() -> None:
    env = PixelMaze(7, num_balls=2, max_steps=10)
    state, seen = opened(env, 1)
    picture = env.render_image(jax.tree.map(np.asarray, state), np.asarray(seen))
    assert picture.shape == (256, 512, 3) and picture.dtype == np.uint8
    np.testing.assert_array_equal(picture[::4, :256:4], seen)
    assert set(env.remembered(state)) == {"place of the first ball"}


def test_a_smallest_maze_has_all_its_balls() -> None:
    state, _ = opened(PixelMaze(5, num_balls=3, max_steps=10), 0)
    places = {tuple(place) for place in np.asarray([*state.balls, state.place]).tolist()}
    assert len(places) == 4


@pytest.mark.parametrize(
    "given",
    [
        {"target": 3},
        {"target": 0.0, "walls": np.zeros((3, 3))},
        {"place": (np.nan, 1.0)},
        {"balls": [[1], [1, 2]]},
    ],
)
def test_impossible_beginnings_are_refused(given: dict[str, Any]) -> None:
    env = PixelMaze(9)
    drawn = env.draw(np.random.default_rng(0), 0)
    with pytest.raises(UserError, match="must be of shape .* to below"):
        env.force(drawn, given)
    forced = env.force(drawn, {"target": 2, "heading": -1})
    assert forced["target"] == 2 and np.asarray(forced["target"]).dtype == drawn["target"].dtype
