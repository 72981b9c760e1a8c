"""The best returns in POPGym's tasks: partly computed again, with policies played in the tasks."""

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.popgym_bounds import bandit, battleship, cards, labyrinth, mine_sweeper
from benchmarks.popgym_bounds.__main__ import BOUNDS, MEMORYLESS

from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.envs.popgym.labyrinth import START, WALL
from clew.lab.studies.popgym.floors import best_returns, floors

FOUND = json.loads(Path("results/popgym-bounds/bounds.json").read_text())
EXACT = {"higher_lower": DIFFICULTIES, "concentration": ["easy"], "mine_sweeper": ["easy"]}


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_the_package_has_what_was_found(difficulty: str) -> None:
    rows = {row["task"]: row for row in FOUND["best"] if row["difficulty"] == difficulty}
    assert {*rows} == {*BOUNDS} == {*POPGYM}
    for task, (low, high) in best_returns(difficulty).items():
        assert low == pytest.approx(rows[task]["low"], abs=6e-4)
        assert high == pytest.approx(rows[task]["high"], abs=6e-4)
        assert max(floors(difficulty)[task].values()) <= low <= high <= 1.0
    for row in FOUND["without_memory"]:
        if row["difficulty"] == difficulty:
            assert row["return"] <= best_returns(difficulty)[row["task"]][0] + 1e-3


@pytest.mark.parametrize(
    ("task", "difficulty"), [(t, d) for t, some in EXACT.items() for d in some]
)
def test_what_is_computed_comes_out_again(task: str, difficulty: str) -> None:
    lower, _, upper, _ = BOUNDS[task](POPGYM[task](difficulty=difficulty))
    assert best_returns(difficulty)[task] == pytest.approx((lower.mean, upper.mean), abs=6e-4)
    assert lower.mean == pytest.approx(upper.mean)
    assert lower.standard_error == upper.standard_error == 0.0


def test_a_memory_of_four_cards_by_hand() -> None:
    """The first turn guesses one of three; then everything is known."""
    assert cards.expected_mismatches(((0, 2), (0, 2))) == pytest.approx(2 / 3)


def test_no_policy_is_above_the_bound_of_few_arms() -> None:
    """One arm and one pull is worth the expected payment; two arms and two pulls by hand."""
    prices = np.linspace(0.0, 1.0, 1001)[:, None]
    assert bandit.single_arm_value(1, np.zeros((1, 1)))[0, 0] == pytest.approx(0.5)
    best = 0.5 + 0.5 * (2 / 3) + 0.5 * 0.5  # the arm that paid again, otherwise the other one
    assert min(2 * prices + 2 * bandit.single_arm_value(2, prices))[0] >= best


@pytest.mark.parametrize("ship", [2, 5])
def test_a_ship_lies_in_every_place_once(ship: int) -> None:
    found = battleship.placements(8, ship)
    assert found.shape == (2 * 8 * (8 - ship + 1), 64) and (found.sum(axis=1) == ship).all()


def test_chances_of_mines_are_those_of_all_boards() -> None:
    squares, mines, seen = 9, 3, np.isin(np.arange(9), (0, 5, 6))
    beside = mine_sweeper.neighbours_of(3)
    board = np.isin(np.arange(squares), (1, 4, 8))
    shown = beside.astype(int) @ board
    all_boards = np.array([np.isin(range(9), some) for some in itertools.combinations(range(9), 3)])
    alike = (all_boards @ beside.astype(int) == shown)[:, seen].all(1) & ~all_boards[:, seen].any(1)
    chances = mine_sweeper.mine_probabilities(beside, seen, shown, mines)
    assert chances == pytest.approx(all_boards[alike].mean(axis=0))


def turned_right(seen: np.ndarray) -> int:
    """An action along the right wall, from an observation alone: left, right, up or down."""
    view, last = seen[:9].reshape(3, 3), int(seen[9])
    here = (1, 1)  # at the upper and left edges the view is shifted
    if view[0, 1] == START and last in (2, 4) and (view[2] == WALL).all():
        here = (0, 1)
    if view[1, 0] == START and last in (0, 4) and (view[:, 2] == WALL).all():
        here = (1, 0)
    actions = (1, 3, 0, 2)  # clockwise, as in `labyrinth`
    heading = 0 if last == 4 else actions.index(last)
    ways = []
    for turn in labyrinth.RIGHT_FIRST:
        direction = (heading + turn) % 4
        row, column = np.add(here, labyrinth.CLOCKWISE[direction])
        if 0 <= row < 3 and 0 <= column < 3 and view[row, column] != WALL:
            ways.append((view[row, column] != 3, len(ways), actions[direction]))
    return min(ways)[2]


@pytest.mark.parametrize("task", ["labyrinth_escape", "labyrinth_explore"])
def test_the_walk_along_the_wall_needs_no_memory(task: str, monkeypatch: Any) -> None:
    """In the task itself it earns what the bounds say, maze by maze."""
    monkeypatch.setattr(labyrinth, "MAZES", 4)
    env: Any = POPGYM[task]()
    step, keys, total = jax.jit(env.step), jax.random.split(jax.random.key(0), 4), []
    for key in keys:
        state, seen = env.reset(key)
        total.append(0.0)
        ended = False
        while not ended:
            action = jnp.asarray(turned_right(np.asarray(seen)), jnp.int32)
            state, told = step(state, action, key)
            seen, ended = told.observation, bool(told.terminated | told.truncated)
            total[-1] += float(told.reward)
    (policy,) = (policy for policy in MEMORYLESS if policy.task == task)
    assert policy.earns(env).mean == pytest.approx(np.mean(total), abs=1e-5)


def test_the_arm_that_paid_again_earns_in_the_task_what_the_bounds_say() -> None:
    env: Any = POPGYM["multiarmed_bandit"]()

    @jax.jit
    @jax.vmap
    def play(key: jax.Array) -> jax.Array:
        def pull(carry: Any, key: jax.Array) -> Any:
            state, arm = carry
            state, told = env.step(state, arm, key)
            other = (arm + 1) % env.num_actions
            return (state, jnp.where(told.observation == 1, arm, other)), told.reward

        start = (env.reset(key)[0], jnp.zeros((), jnp.int32))
        return jax.lax.scan(pull, start, jax.random.split(key, env.pulls))[1].sum()

    earned = play(jax.random.split(jax.random.key(0), 1_000)).mean()
    (row,) = (
        row
        for row in FOUND["without_memory"]
        if row["task"] == "multiarmed_bandit" and row["difficulty"] == "easy"
        if row["sees_previous_action"]
    )
    assert float(earned) == pytest.approx(row["return"], abs=0.04)
