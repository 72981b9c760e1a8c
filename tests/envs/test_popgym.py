"""POPGym's tasks: episodes recorded from popgym 1.0.7, the best answers' returns, openings."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.popgym_exactness import compare, recorded

from clew import make_env
from clew.envs import AutoReset, Environment
from clew.envs.popgym import POPGYM
from clew.envs.popgym.cards import shuffle
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.envs.stream import where_any
from clew.errors import UserError
from slow_cases import fast_only

EPISODES = recorded(Path(__file__).parent / "popgym_episodes.npz")
VARIANTS = [
    pytest.param(name, difficulty, marks=[pytest.mark.slow] if difficulty != "easy" else [])
    for name in POPGYM
    for difficulty in DIFFICULTIES
]


@pytest.mark.parametrize(("name", "difficulty"), VARIANTS)
def test_an_episode_of_popgym_goes_as_it_did_there(name: str, difficulty: str) -> None:
    """`python -m benchmarks.popgym_exactness --record` stored them; the page has 100,000 steps."""
    found = compare(name, difficulty, EPISODES[name, difficulty])
    assert (found.different, found.steps >= 60) == (0, True)


def test_an_observation_of_nan_differs() -> None:
    episode, *_ = EPISODES["position_only_pendulum", "easy"]
    spoiled = episode.rows | {"observation": episode.rows["observation"].copy()}
    spoiled["observation"][3] = np.nan
    episodes = [episode._replace(rows=spoiled)]
    assert compare("position_only_pendulum", "easy", episodes).different == 1


BATCH = 16


def play(env: Environment, best: Any) -> tuple[float, bool]:
    """The return of an episode with the actions that `best` chooses by state, and its end."""

    def step(carry: Any, key: Any) -> Any:
        state, over = carry
        after, then = env.step(state, best(state).astype(jnp.int32), key)
        ends = over | then.terminated | then.truncated
        return (after, ends), jnp.where(over, 0.0, then.reward)

    @jax.jit
    def run(key: Any) -> Any:
        first = env.reset(key)[0], jnp.zeros((), bool)
        (_, over), earned = jax.lax.scan(step, first, jax.random.split(key, 120))
        return jnp.sum(earned), over

    total, over = run(jax.random.key(0))
    return float(total), bool(over)


def square_of(squares: Any) -> Any:
    """Row and column of the first square that is true."""
    return jnp.stack(jnp.unravel_index(jnp.argmax(squares), squares.shape))


def place_of(state: Any) -> Any:
    """A card that lies face down, or the place of its pair."""
    places, first = jnp.arange(len(state.kinds)), jnp.maximum(state.first, 0)
    pairs = (state.kinds == state.kinds[first]) & (places != first) | (state.first < 0)
    return jnp.argmax(~state.found & pairs)


BEST: dict[str, Any] = {
    "repeat_first": lambda state: state.kinds[0],
    "repeat_previous": lambda state: state.kinds[jnp.maximum(state.time - 3, 0)],
    "autoencode": lambda state: state.kinds[jnp.clip(102 - state.time, 0, 51)],
    "count_recall": lambda state: jnp.sum(
        (state.values == state.queries[state.time]) & (jnp.arange(52) <= state.time)
    ),
    "concentration": place_of,
    "battleship": lambda state: square_of(state.ships & ~state.guessed),
    "mine_sweeper": lambda state: square_of(~state.mines & ~state.viewed),
}


@pytest.mark.parametrize("name", BEST)
def test_who_remembers_all_or_sees_what_is_hidden_earns_1(name: str) -> None:
    assert play(make_env(name), BEST[name]) == (pytest.approx(1.0, abs=1e-5), True)


@pytest.mark.slow
def test_mazes_are_connected_and_nearly_all_cells_are_open() -> None:
    env = make_env("labyrinth_escape")
    grids = np.asarray(jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 50))[0].grid)
    cells = grids[:, 1::2, 1::2] != 1
    assert cells.mean() > 0.99
    for grid in grids:
        reached, free = grid == 2, grid != 1
        for _ in range(grid.size):
            grown = np.pad(reached, 1)
            reached = free & (
                reached | grown[2:, 1:-1] | grown[:-2, 1:-1] | grown[1:-1, 2:] | grown[1:-1, :-2]
            )
        assert (reached == free).all()


@pytest.mark.parametrize(
    "name", fast_only(["repeat_previous", "autoencode", "mine_sweeper"], "mine_sweeper")
)
def test_costly_openings_change_nothing(name: str) -> None:
    """Opened only when an environment needs it, or at every step: bit for bit the same."""
    env = make_env(name)
    assert env.opening_is_costly

    def run(env: Environment) -> Any:
        stream = AutoReset(env)

        def step(states: Any, key: Any) -> Any:
            shape = (BATCH, *(env.action_space.shape or ()))
            actions = jax.random.randint(key, shape, 0, 4)
            return jax.vmap(stream.step)(states, actions, jax.random.split(key, BATCH))

        first, _ = jax.vmap(stream.reset)(jax.random.split(jax.random.key(1), BATCH))
        return jax.lax.scan(step, first, jax.random.split(jax.random.key(2), 220))[1]

    found = jax.jit(lambda: run(env))()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(env), "opening_is_costly", False)
        expected = jax.jit(lambda: run(env))()
    assert found.start.any()
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("num_decks", fast_only([1, 31], 1))
def test_cards_and_mines_lie_as_jax_would_shuffle_them(num_decks: int) -> None:
    def by_jax(count: int) -> Any:
        return jax.vmap(lambda key: jax.random.permutation(key, count))(keys)

    keys = jax.random.split(jax.random.key(0), 100)
    cards = jax.vmap(lambda key: shuffle(key, num_decks))(keys)
    np.testing.assert_array_equal(cards, by_jax(num_decks * 52))
    mines = jax.vmap(make_env("mine_sweeper", difficulty="hard").reset)(keys)[0].mines
    np.testing.assert_array_equal(mines.reshape(100, 64), by_jax(64) < 10)


def test_a_batch_in_which_nobody_chooses_is_not_computed() -> None:
    """With a second batch axis around it too, as where several seeds are trained at once."""
    called = []

    def one(choice: Any, state: Any, seen: Any, key: Any) -> Any:
        jax.debug.callback(lambda: called.append(1))
        return jax.tree.map(lambda x: jnp.where(choice, -x, x), (state, seen))

    numbers = jnp.arange(1.0, 4.0)
    none, some = jnp.zeros(3, bool), jnp.array([False, True, False])
    run = jax.jit(jax.vmap(where_any(one), in_axes=(0, 0, 0, None)))
    np.testing.assert_array_equal(run(none, numbers, numbers, 0.0), (numbers, numbers))
    jax.effects_barrier()
    assert not called
    state, _ = run(some, numbers, numbers, 0.0)
    np.testing.assert_array_equal(state, [1.0, -2.0, 3.0])
    many, one_of_many = jnp.arange(16.0), jnp.arange(16) == 5
    state, _ = run(one_of_many, many, many, 0.0)
    np.testing.assert_array_equal(state, jnp.where(one_of_many, -many, many))
    twice = jax.jit(jax.vmap(jax.vmap(where_any(one), (0, 0, 0, None)), (0, None, None, None)))
    jax.effects_barrier()
    called.clear()
    state, _ = twice(jnp.stack([none, none]), numbers, numbers, 0.0)
    np.testing.assert_array_equal(state, [numbers, numbers])
    jax.effects_barrier()
    assert not called
    state, _ = twice(jnp.stack([none, some]), numbers, numbers, 0.0)
    np.testing.assert_array_equal(state, [[1.0, 2.0, 3.0], [1.0, -2.0, 3.0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: make_env("repeat_first", difficulty="esy"),
            "'esy'.*did you mean 'easy'",
        ),
        (lambda: make_env("repeat_previous", k=52), "k must be below the 52 cards, got 52"),
        (lambda: make_env("repeat_previous", num_decks=0), "num_decks .* at least 1.* got 0"),
        (
            lambda: make_env("concentration", kind="suits"),
            "value of kind 'suits'.* known: colours, ranks",
        ),
        (lambda: make_env("count_recall", as_published=1), "as_published must be True or False"),
        (lambda: make_env("labyrinth_escape", size=11), "size must be even, got 11"),
        (lambda: make_env("mine_sweeper", num_mines=14), "num_mines .* got 14"),
        (lambda: make_env("battleship", size=4), "size .* at least 5.* got 4"),
    ],
)
def test_impossible_tasks_are_refused(call: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("repeat_first", {"cards": list(range(51))}),
        ("battleship", {"ships": np.zeros((8, 8))}),
        ("mine_sweeper", {"mines": np.ones((4, 4))}),
        ("position_only_cartpole", {"numbers": [0.0, np.nan, 0.0, 0.0]}),
        ("multiarmed_bandit", {"probabilities": [2.0] * 10}),
    ],
)
def test_an_episode_cannot_be_forced_to_be_impossible(name: str, options: dict[str, Any]) -> None:
    env = make_env(name)
    with pytest.raises(UserError, match=next(iter(options))):
        env.force(env.draw(np.random.default_rng(0), 0), options)
