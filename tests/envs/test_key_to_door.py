"""Key-to-Door equals a plain transcription; impossible settings are refused."""

from typing import Any

import jax
import numpy as np
import pytest

import clew
from clew.envs import KeyToDoor
from clew.envs.key_to_door import KEYS, STARTS, TREES
from clew.errors import UserError
from oracles.key_to_door import KeyToDoorOracle

DISTRACTOR = 50


def pair(place: np.ndarray) -> tuple[int, int]:
    return int(place[0]), int(place[1])


def towards(oracle: KeyToDoorOracle, random: np.random.Generator) -> int:
    """Goes to the key through the gap, to an apple, to the door and beyond."""
    row, column = oracle.place
    goal = [oracle.key, random.choice(sorted(oracle.trees)), (0, 5)][oracle.phase]
    below_the_gap = oracle.phase == 0 and row > 2 and not 4 <= column <= 6
    if row != goal[0] and not below_the_gap:
        return 0 if goal[0] < row else 1
    target = 5 if below_the_gap else goal[1]
    return 2 if target < column else 3


def test_it_is_its_transcription() -> None:
    """With good actions, with others, and with invalid ones."""
    env, random = KeyToDoor(DISTRACTOR), np.random.default_rng(0)

    @jax.jit
    def play(opening: dict[str, Any], actions: jax.Array) -> Any:
        state, first = env.reset_to(**opening)
        step = lambda state, action: env.step(state, action, jax.random.key(0))  # noqa: E731
        return first, jax.lax.scan(step, state, actions)[1]

    ends = []
    for episode in range(40):
        opening = env.draw(random, episode)
        places = [pair(place) for place in opening["apples"]]
        oracle = KeyToDoorOracle(DISTRACTOR, pair(opening["key"]), pair(opening["place"]), places)
        seen, told, actions, errs = [oracle.seen()], [], [], random.random()
        while not told or not told[-1][1]:
            errs_now = random.random() < errs
            actions.append(int(random.integers(-1, 5)) if errs_now else towards(oracle, random))
            told.append(oracle.step(actions[-1]))
            seen.append(oracle.seen())
        assert len(actions) == env.shortest == 75
        first, steps = jax.tree.map(np.asarray, play(opening, np.array(actions, np.int32)))
        np.testing.assert_allclose(np.stack([first, *steps.observation]), seen, atol=1e-6)
        np.testing.assert_array_equal(steps.reward, [reward for reward, *_ in told])
        np.testing.assert_array_equal(steps.terminated, [ended for _, ended, _ in told])
        assert not steps.truncated.any()
        for name in env.metric_names:
            np.testing.assert_array_equal(steps.metrics[name], [m[name] for *_, m in told])
        ends.append(tuple(told[-1][2][name] for name in ("has_key", "success")))
    assert {(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)} == set(ends)


def test_all_places_are_as_likely() -> None:
    """In JAX and with Gymnasium's generator."""
    env, random = KeyToDoor(), np.random.default_rng(0)
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 3000))
    drawn = [env.draw(random, number) for number in range(3000)]
    trees = np.zeros((2, 3000, 7, 11), bool)
    trees[0] = state.trees
    for number, opening in enumerate(drawn):
        trees[1, number][tuple(opening["apples"].T)] = True
    assert (trees.sum((2, 3)) == 10).all()
    for shares in trees.mean(1):
        np.testing.assert_allclose(shares[tuple(TREES.T)], 10 / 22, atol=0.04)
    for name, places in (("key", KEYS), ("place", STARTS)):
        for found in (np.asarray(getattr(state, name)), np.stack([d[name] for d in drawn])):
            each, counts = np.unique(found, axis=0, return_counts=True)
            np.testing.assert_array_equal(each, places)
            np.testing.assert_allclose(counts / 3000, 0.1, atol=0.025)


def test_it_can_be_watched() -> None:
    env = clew.make_env("key_to_door")
    opening = env.draw(np.random.default_rng(3), 0)
    state, first = jax.tree.map(np.asarray, env.reset_to(**opening))
    text, picture = env.render_text(state, first), env.render_image(state, first)
    assert text.count("k") == 1 + 1 and "step 0, has no key, 0 apples" in text
    assert picture is not None and picture.shape == (350, 550, 3)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"key": (4, 4)}, "key must be a place of"),
        ({"place": (4, 4.5)}, "place must be a place of"),
        ({"apples": TREES[:9]}, "apples must be 10 different places of"),
        ({"apples": TREES[[0] * 10]}, "apples must be 10 different places of"),
    ],
)
def test_impossible_openings(given: dict[str, Any], told: str) -> None:
    env = KeyToDoor()
    with pytest.raises(UserError, match=told):
        env.force(env.draw(np.random.default_rng(0), 0), given)


def test_impossible_settings() -> None:
    with pytest.raises(UserError, match="distractor must be an integer of at least 1, got 0"):
        KeyToDoor(0)
