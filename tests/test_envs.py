"""The T-Maze against its transcription, and the stream of episodes around any environment."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.envs import (
    ENVS,
    AutoReset,
    Environment,
    TimeStep,
    TMaze,
    Transition,
    env_options,
    make_env,
    optimal_return,
    reach_probability,
)
from clew.envs.tmaze import DISTRACTOR_BITS, DOWN, LEFT, RIGHT, UP
from clew.errors import UserError
from oracles.tmaze import TMazeOracle, gray_words

BATCH = 32


def roll(env: Environment, actions: np.ndarray, seed: int = 0) -> TimeStep:
    """Time steps [time + 1, batch] of a stream under given actions [time, batch]."""
    stream = AutoReset(env)
    time, batch = actions.shape
    keys = jax.random.split(jax.random.key(seed), (time + 1, batch))

    @jax.jit
    def run(keys, actions):
        state, first = jax.vmap(stream.reset)(keys[0])
        _, rest = jax.lax.scan(
            lambda state, inputs: jax.vmap(stream.step)(state, *inputs), state, (actions, keys[1:])
        )
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)

    return jax.tree.map(np.asarray, run(keys, jnp.asarray(actions, jnp.int32)))


def walking_actions(time: int, seed: int = 0) -> np.ndarray:
    """Random actions [time, batch] that mostly walk to the right."""
    chances = [0.15, 0.15, 0.1, 0.6]
    return np.random.default_rng(seed).choice(4, size=(time, BATCH), p=chances)


def cue_of(observation: np.ndarray) -> int:
    """The cue that a first observation shows."""
    assert tuple(observation[:2]) in [(0.0, 1.0), (1.0, 0.0)]
    return int(observation[0])


@pytest.mark.parametrize("rule", ["terminate", "truncate"])
@pytest.mark.parametrize(("length", "limit"), [(2, 2), (6, 17)])
def test_a_stream_of_random_episodes_equals_the_transcription(length, limit, rule):
    env = TMaze(length, limit, rule)
    actions = walking_actions(120)
    steps = roll(env, actions)
    ends = {"success": 0, "wrong": 0, "timeout": 0}
    for b in range(BATCH):
        at = jax.tree.map(lambda leaf, b=b: leaf[:, b], steps)
        t = 0
        while t < len(actions):
            assert at.start[t]
            oracle = TMazeOracle(length, limit, rule == "truncate", cue_of(at.observation[t]))
            np.testing.assert_array_equal(
                at.observation[t, :-DISTRACTOR_BITS], oracle.observation()
            )
            assert not at.observation[t, -DISTRACTOR_BITS:].any()
            t = _compare_episode(at, actions[:, b], t, oracle, ends)
    assert min(ends.values()) > 20, f"every way to end must occur: {ends}"


def _compare_episode(at: TimeStep, actions: np.ndarray, t: int, oracle: TMazeOracle, ends) -> int:
    """Follows one episode from its start; returns where the next one starts."""
    total, terminated, truncated = 0.0, False, False
    while not (terminated or truncated) and t < len(actions):
        reward, terminated, truncated, metrics = oracle.step(int(actions[t]))
        total, t = total + reward, t + 1
        assert at.reward[t] == np.float32(reward)
        assert at.discount[t] == (0.0 if terminated else 1.0)
        assert (at.last[t], at.ended[t]) == (truncated, terminated or truncated)
        assert at.start[t] == terminated
        if not terminated:
            expected = oracle.observation()
            np.testing.assert_array_equal(at.observation[t, :-DISTRACTOR_BITS], expected)
        if not at.ended[t]:
            assert all(values[t] == 0.0 for values in at.metrics.values())
            continue
        expected = {**metrics, "return": total, "length": oracle.time}
        assert {name: float(v[t]) for name, v in at.metrics.items()} == pytest.approx(expected)
        how = "timeout" if metrics["timeout"] else "success" if metrics["success"] else "wrong"
        ends[how] += 1
    if truncated and t < len(actions):
        t += 1
        assert (at.reward[t], at.discount[t], at.ended[t], at.last[t]) == (0.0, 1.0, False, False)
        assert all(values[t] == 0.0 for values in at.metrics.values())
    return t


@pytest.mark.parametrize(
    ("length", "bits"), [(2, 8), (120, 8), (256, 8), (257, 9), (512, 9), (513, 10), (70_000, 17)]
)
def test_the_position_takes_eight_bits_and_as_many_as_the_junction_needs(length, bits):
    env = TMaze(length, time_limit=length)
    assert env.observation_size == 2 + bits + 6
    assert env.reset(jax.random.key(0))[1].shape == (env.observation_size,)


@pytest.mark.parametrize("length", [256, 300])
def test_the_whole_corridor_is_in_gray_code_and_the_junction_has_no_other_mark(length):
    env = TMaze(length)
    observation = roll(env, np.full((length - 1, 1), RIGHT)).observation[:, 0]
    bits = env.observation_size - 8
    codes = ["".join(str(int(bit)) for bit in row) for row in observation[:, 2:-6]]
    assert codes == gray_words(bits)[:length]
    assert not observation[1:, :2].any()
    assert codes[:6] == [word.zfill(bits) for word in ("0", "1", "11", "10", "110", "111")]


@pytest.mark.parametrize(("turn", "wanted"), [(UP, 0), (DOWN, 1)])
@pytest.mark.parametrize("cue", [0, 1])
def test_the_cue_says_which_turn_is_right_and_there_is_no_way_back(cue, turn, wanted):
    env, key = TMaze(3), jax.random.key(1)
    state, observation = env.reset_to(cue)
    assert list(observation[:2]) == ([0.0, 1.0] if cue == 0 else [1.0, 0.0])
    for action, position in [(RIGHT, 1), (LEFT, 0), (LEFT, 0), (UP, 0), (DOWN, 0), (RIGHT, 1)]:
        state, transition = env.step(state, jnp.int32(action), key)
        assert (int(state.position), float(transition.reward)) == (position, np.float32(-0.1))
    for action in (RIGHT, LEFT, LEFT, RIGHT, 7, -1):
        state, transition = env.step(state, jnp.int32(action), key)
        assert (int(state.position), bool(transition.terminated)) == (2, False)
    _, transition = env.step(state, jnp.int32(turn), key)
    assert bool(transition.terminated) and not bool(transition.truncated)
    assert float(transition.reward) == (4.0 if wanted == cue else -1.0)
    assert float(transition.metrics["success"]) == float(wanted == cue)


def test_a_turn_in_the_last_allowed_step_is_a_turn():
    for rule in ("terminate", "truncate"):
        env, key = TMaze(2, 2, rule), jax.random.key(0)
        state, _ = env.reset_to(1)
        state, _ = env.step(state, jnp.int32(RIGHT), key)
        _, transition = env.step(state, jnp.int32(DOWN), key)
        assert bool(transition.terminated) and not bool(transition.truncated)
        assert float(transition.metrics["timeout"]) == 0.0


def test_cues_and_distractors_are_fair_and_independent():
    actions = np.full((600, BATCH), LEFT)
    steps = roll(TMaze(5, time_limit=5), actions)
    cues = steps.observation[steps.start][:, 0]
    noise = steps.observation[~steps.start][:, -DISTRACTOR_BITS:]
    assert abs(cues.mean() - 0.5) < 4 * 0.5 / len(cues) ** 0.5
    assert abs(noise.mean(0) - 0.5).max() < 4 * 0.5 / len(noise) ** 0.5
    assert abs(np.corrcoef(noise.T) - np.eye(DISTRACTOR_BITS)).max() < 4 / len(noise) ** 0.5
    across_time = noise.reshape(-1, BATCH, DISTRACTOR_BITS)
    assert (across_time[1:] == across_time[:-1]).mean() == pytest.approx(0.5, abs=0.01)


def test_types_and_shapes_never_change():
    stream = AutoReset(TMaze(4, on_time_limit="truncate"))
    key = jax.random.key(0)
    state, first = stream.reset(key)
    after = stream.step(state, jnp.int32(RIGHT), key)
    described = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), (state, first))
    assert described == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), after)
    assert first.observation.dtype == first.reward.dtype == jnp.float32
    assert set(first.metrics) == set(stream.metric_names)
    assert (stream.observation_size, stream.num_actions) == (16, 4)


class Countdown(Environment):
    """Ends after two steps in the way of its setting; its state turns NaN at the end."""

    terminates: bool = eqx.field(static=True)
    truncates: bool = eqx.field(static=True)
    metric_names: tuple[str, ...] = eqx.field(static=True, default=())
    observation_size: int = eqx.field(static=True, default=1)
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        return jnp.float32(2.0), jnp.full((1,), 2.0, jnp.float32)

    def step(self, state, action, key):
        left = state - 1.0
        end = left == 0.0
        return jnp.where(end, jnp.nan, left), Transition(
            jnp.where(end, -1.0, left)[None], jnp.float32(1.0), end & self.terminates,
            end & self.truncates, {},
        )  # fmt: skip


def test_termination_wins_and_a_nan_does_not_reach_the_next_episode():
    zeros = np.zeros((6, 1), np.int64)
    both = roll(Countdown(terminates=True, truncates=True), zeros)
    assert both.observation.ravel().tolist() == [2, 1, 2, 1, 2, 1, 2]
    assert both.discount.ravel().tolist() == [1, 1, 0, 1, 0, 1, 0]
    assert not both.last.any()
    cut = roll(Countdown(terminates=False, truncates=True), zeros)
    assert cut.observation.ravel().tolist() == [2, 1, -1, 2, 1, -1, 2]
    assert cut.last.ravel().tolist() == [False, False, True, False, False, True, False]
    assert cut.start.ravel().tolist() == [True, False, False, True, False, False, True]
    assert cut.reward.ravel().tolist() == [0, 1, 1, 0, 1, 1, 0]
    assert cut.metrics["return"].ravel().tolist() == [0, 0, 2, 0, 0, 2, 0]


class Coin(Environment):
    """Shows the number that opened the episode; a coin decides at each step whether it ends."""

    metric_names: tuple[str, ...] = eqx.field(static=True, default=())
    observation_size: int = eqx.field(static=True, default=1)
    num_actions: int = eqx.field(static=True, default=1)

    def reset(self, key):
        opening = jax.random.uniform(key, (1,))
        return opening, opening

    def step(self, state, action, key):
        heads = jax.random.uniform(key) < 0.5
        return state, Transition(state, jnp.float32(0.0), heads, jnp.zeros_like(heads), {})


def test_how_an_episode_ends_says_nothing_about_the_next_one():
    steps = roll(Coin(), np.zeros((100, BATCH), np.int64))
    openings = steps.observation[1:][steps.start[1:]]
    assert openings.mean() == pytest.approx(0.5, abs=4 * 0.29 / len(openings) ** 0.5)


def test_undeclared_metrics_are_refused():
    stream = AutoReset(Countdown(terminates=True, truncates=False, metric_names=("score",)))
    state, _ = stream.reset(jax.random.key(0))
    with pytest.raises(UserError, match=r"Countdown declares the metrics \['score'\].*\[\]"):
        stream.step(state, jnp.int32(0), jax.random.key(0))


def test_the_chance_of_finding_the_junction_is_the_documented_warning():
    assert reach_probability(120) == pytest.approx(1.78e-7, rel=0.01)
    assert reach_probability(160) == pytest.approx(1.81e-12, rel=0.01)
    assert reach_probability(200) == pytest.approx(7.30e-19, rel=0.01)
    assert reach_probability(200, 1000, (0.225, 0.225, 0.2, 0.35)) == pytest.approx(0.021, rel=0.02)
    assert reach_probability(50, 49, (0.0, 0.0, 0.0, 1.0)) == 1.0
    assert reach_probability(50, 48, (0.0, 0.0, 0.0, 1.0)) == 0.0


def test_the_chance_of_finding_the_junction_equals_counting_every_action_sequence():
    reached = 0
    for actions in itertools.product(range(4), repeat=5):
        oracle = TMazeOracle(4, 100, False, 0)
        reached += any(oracle.step(action)[3]["junction"] for action in actions)
    assert reach_probability(4, 5) == pytest.approx(reached / 4**5)


def test_optimal_returns():
    lengths = (120, 140, 160, 180, 200)
    assert [optimal_return(n) for n in lengths] == pytest.approx([-7.9, -9.9, -11.9, -13.9, -15.9])
    blind = [optimal_return(n, success_probability=0.5) for n in lengths]
    assert blind == pytest.approx([optimal_return(n) - 2.5 for n in lengths])
    discounted = [optimal_return(n, 0.99) for n in lengths]
    assert discounted == pytest.approx([-5.77, -6.54, -7.17, -7.68, -8.10], abs=0.01)
    assert optimal_return(120, 0.99, success_probability=0.0) == pytest.approx(-7.28, abs=0.01)
    actions = np.array([[RIGHT]] * 119 + [[UP]])
    walked = roll(TMaze(120), actions, seed=4).metrics["return"][-1, 0]
    assert walked == pytest.approx(-7.9, abs=1e-4) or walked == pytest.approx(-12.9, abs=1e-4)


def test_make_env_builds_by_name():
    env = make_env("tmaze", corridor_length=20, on_time_limit="truncate")
    assert isinstance(env, TMaze) and (env.corridor_length, env.time_limit) == (20, 1000)
    assert env_options("tmaze") == {
        "corridor_length": 120, "time_limit": 1000, "on_time_limit": "terminate",
    }  # fmt: skip
    assert all(issubclass(kind, Environment) for kind in ENVS.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_env("tmase"), "unknown environment 'tmase'; did you mean 'tmaze'"),
        (lambda: env_options("maze"), "unknown environment 'maze'"),
        (lambda: make_env("tmaze", corridor=9), "option of tmaze 'corridor'.*'corridor_length'"),
        (lambda: TMaze(1), "corridor_length must be an integer of at least 2, got 1"),
        (lambda: TMaze(20.0), "corridor_length .* got 20.0"),  # type: ignore[arg-type]
        (lambda: TMaze(20, 0), "time_limit must be an integer of at least 1, got 0"),
        (lambda: TMaze(on_time_limit="end"), "on_time_limit 'end'.*terminate, truncate"),
        (lambda: reach_probability(1), "corridor_length .* got 1"),
        (lambda: reach_probability(9, 9, (1.0, 1.0, 0.0, 0.0)), "sum to 1"),
        (lambda: optimal_return(9, 1.5), "discount must be between 0 and 1, got 1.5"),
    ],
)
def test_bad_values_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_a_maze_that_cannot_be_solved_in_time_warns():
    with pytest.warns(UserWarning, match="time_limit 1000 is shorter than corridor_length 1001"):
        TMaze(1001)
