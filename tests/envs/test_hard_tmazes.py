"""Passive, active and endless T-Mazes equal plain transcriptions; their best possible returns."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import clew
from clew.envs import ActiveTMaze, EndlessTMaze, Environment, PassiveTMaze, Transition
from clew.envs.timed_tmaze import TimedTMaze
from clew.errors import UserError
from oracles.endless_tmaze import EndlessTMazeOracle
from oracles.timed_tmaze import TimedTMazeOracle

EPISODES = 60


def player(env: Environment, longest: int) -> Callable[[dict[str, Any], list[int]], Any]:
    """Plays episodes with a step limit: first observation, transitions of given actions."""

    @jax.jit
    def play(opening: Any, actions: jax.Array) -> tuple[Any, Transition]:
        state, first = env.reset_to(**opening)
        keys = jax.random.split(jax.random.key(0), longest)
        return first, jax.lax.scan(lambda s, given: env.step(s, *given), state, (actions, keys))[1]

    def played(opening: dict[str, Any], actions: list[int]) -> tuple[Any, Any]:
        padded = np.zeros(longest, np.int32)
        padded[: len(actions)] = actions
        first, steps = jax.tree.map(np.asarray, play(opening, padded))
        return first, jax.tree.map(lambda leaf: leaf[: len(actions)], steps)

    return played


def at(transitions: Any, t: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[t], transitions)


def good_action(oracle: TimedTMazeOracle) -> int:
    """First to the oracle, then right, then to the goal's side."""
    if not oracle.told:
        return 2
    return 0 if oracle.place[0] < oracle.junction else (1 if oracle.goal == 1 else 3)


@pytest.mark.parametrize(
    "env", [PassiveTMaze(4), PassiveTMaze(1), ActiveTMaze(3), ActiveTMaze(2, 3)]
)
def test_a_timed_tmaze_is_its_transcription(env: TimedTMaze) -> None:
    """For mostly good actions, and for invalid ones."""
    random, ends = np.random.default_rng(0), []
    play = player(env, env.shortest)
    for _ in range(EPISODES):
        goal = int(random.choice([-1, 1]))
        oracle = TimedTMazeOracle(env.corridor_length, env.oracle_length, goal)
        seen, told, actions = [oracle.seen], [], []
        while not told or not told[-1][1]:
            wanders = random.random() < 0.15
            actions.append(int(random.integers(-1, 6)) if wanders else good_action(oracle))
            told.append(oracle.step(actions[-1]))
            seen.append(oracle.seen)
        assert len(actions) == env.shortest
        first, steps = play({"goal": goal}, actions)
        np.testing.assert_array_equal(np.stack([first, *steps.observation]), seen)
        for t, (reward, terminated, metrics) in enumerate(told):
            step = at(steps, t)
            assert step.reward == np.float32(reward)
            assert (step.terminated, step.truncated) == (terminated, False)
            assert step.metrics == metrics
        ends.append(told[-1][0])
    assert 5 < sum(ends) < EPISODES - 5


@pytest.mark.parametrize(("count", "lengths"), [(1, "fixed"), (3, "fixed"), (3, "uniform")])
def test_the_endless_tmaze_is_its_transcription(count: int, lengths: str) -> None:
    """Every way to end occurs: all corridors, a wrong turn, the time limit."""
    env = EndlessTMaze(3, count, lengths, wrong_reward=-0.5)
    random, ends = np.random.default_rng(1), {"whole": 0, "wrong": 0, "late": 0}
    play = player(env, env.time_limit)
    for episode in range(EPISODES):
        opening = env.draw(random, episode)
        oracle = EndlessTMazeOracle(3, *(list(map(int, x)) for x in opening.values()), wrong=-0.5)
        seen, told, actions = [oracle.observation()], [], []
        chance = random.choice([0.05, 0.9])
        while not told or not (told[-1][1] or told[-1][2]):
            cue, length = oracle.ahead[0]
            good = 0 if oracle.at < length else (1, 2)[cue]
            idle = int(random.integers(1, 4)) if oracle.at < length else int(random.integers(3))
            actions.append(idle if random.random() < chance else good)
            told.append(oracle.step(actions[-1]))
            seen.append(oracle.observation())
        first, steps = play(opening, actions)
        np.testing.assert_array_equal(np.stack([first, *steps.observation]), seen)
        for t, (reward, terminated, truncated, metrics) in enumerate(told):
            step = at(steps, t)
            assert step.reward == np.float32(reward)
            assert (step.terminated, step.truncated) == (terminated, truncated)
            assert step.metrics == pytest.approx(metrics)
        _, _, truncated, metrics = told[-1]
        ends["late" if truncated else "whole" if metrics["success"] else "wrong"] += 1
    assert min(ends.values()) > 2, ends


def test_what_the_best_earn() -> None:
    """1 in timed T-Mazes; in the endless one 1 per turn, minus the cost of finding junctions."""
    for env in (PassiveTMaze(7), ActiveTMaze(5, 2)):
        oracle = TimedTMazeOracle(env.corridor_length, env.oracle_length, -1)
        actions = []
        for _ in range(env.shortest):
            actions.append(good_action(oracle))
            oracle.step(actions[-1])
        _, steps = player(env, env.shortest)({"goal": -1}, actions)
        assert steps.reward.sum() == 1 and steps.metrics["success"][-1] == 1
    opening = {"cues": np.array([1, 0]), "lengths": np.array([2, 1])}
    fixed, uniform = EndlessTMaze(2, 2), EndlessTMaze(2, 2, "uniform")
    _, steps = player(fixed, 6)(opening | {"lengths": np.array([2, 2])}, [0, 0, 2, 0, 0, 1])
    assert steps.reward.sum() == 2 and steps.terminated[-1]
    _, steps = player(uniform, 6)(opening, [0, 2, 0, 2, 0, 1])
    assert steps.reward.sum() == pytest.approx(2 - 0.01) and steps.terminated[-1]


@pytest.mark.parametrize("lengths", ["fixed", "uniform"])
def test_cues_and_lengths_are_uniform(lengths: str) -> None:
    """They are in JAX and with Gymnasium's generator."""
    env = EndlessTMaze(3, 2, lengths)
    state, _ = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 3000))
    random = np.random.default_rng(0)
    drawn = [env.draw(random, i) for i in range(3000)]
    of_numpy = (np.stack([d[name] for d in drawn]) for name in ("cues", "lengths"))
    for cues, found in ((state.cues, state.lengths), of_numpy):
        shares = np.bincount(np.asarray(cues).ravel(), minlength=2) / 6000
        np.testing.assert_allclose(shares, 0.5, atol=0.03)
        shares = np.bincount(np.asarray(found).ravel(), minlength=4) / 6000
        expected = [0, 0, 0, 1] if lengths == "fixed" else [0, 1 / 3, 1 / 3, 1 / 3]
        np.testing.assert_allclose(shares, expected, atol=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PassiveTMaze(0), "corridor_length must be an integer of at least 1"),
        (lambda: ActiveTMaze(3, 0), "oracle_length must be an integer of at least 1"),
        (lambda: EndlessTMaze(0), "corridor_length must be an integer of at least 1"),
        (lambda: EndlessTMaze(num_corridors=0), "num_corridors must be an integer of at least 1"),
        (lambda: EndlessTMaze(lengths="uniforn"), "did you mean 'uniform'"),
        (lambda: PassiveTMaze(2).force({"goal": 1}, {"goal": 0}), "goal must be 1 .up. or -1"),
        (
            lambda: EndlessTMaze(3, 2).force({}, {"lengths": [1, 3]}),
            "lengths must be 2 whole numbers from 3 to 3",
        ),
        (lambda: EndlessTMaze(3, 2).force({}, {"cues": [1]}), "cues must be 2 whole numbers"),
    ],
)
def test_impossible_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_pictures_in_text() -> None:
    state, seen = PassiveTMaze(4).reset_to(1)
    assert PassiveTMaze(4).render_text(state, seen) == (
        "|A---T| before the junction, step 0, goal up\n"
    )
    env = EndlessTMaze(2, 3)
    state, seen = env.reset_to([1, 0, 0], [2, 2, 2])
    assert env.render_text(state, seen) == "|A-T| corridor 1 of 3, step 0, cue right\n"
    assert clew.make_env("active_tmaze").remembered(ActiveTMaze().reset_to(1)[0]) == {"goal": 1}
