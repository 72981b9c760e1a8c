"""The memory chain and the distributed memory in JAX equal their plain transcriptions."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.envs import DistributedMemory, Environment, MemoryChain, TimeStep
from clew.envs.distributed_memory import fixed_schedule
from clew.envs.recall import bsuite_stream, clock
from clew.errors import UserError
from oracles.recall import DistributedMemoryOracle, MemoryChainOracle
from streams import BATCH, roll

KEY = jax.random.key(0)


def bits_shown(observations: np.ndarray) -> list[int]:
    """The context of an episode, read from its observations [time, k+2]."""
    bits = observations[:, 2:]
    return [int(value > 0) for value in bits[np.abs(bits).argmax(0), np.arange(bits.shape[1])]]


def oracle_of(env: Environment, seen: np.ndarray) -> MemoryChainOracle | DistributedMemoryOracle:
    """The transcription of the episode whose observations are [time, k+2]."""
    if isinstance(env, MemoryChain):
        return MemoryChainOracle(env.memory_length, bits_shown(seen), int(seen[:, 1].max()))
    assert isinstance(env, DistributedMemory)
    times = [int(t) for t in np.flatnonzero(seen[:, 2:].any(1))]
    return DistributedMemoryOracle(env.memory_length, bits_shown(seen), times)


def compare(env: Environment, steps: TimeStep, actions: np.ndarray, decisions: int) -> int:
    """Compares whole episodes of a stream [time, batch] with their transcriptions; counts them."""
    episodes = 0
    for b in range(actions.shape[1]):
        for begin in range(0, len(actions) - decisions + 1, decisions):
            assert steps.start[begin, b]
            oracle = oracle_of(env, steps.observation[begin : begin + decisions, b])
            assert steps.observation[begin, b].tolist() == oracle.reset()
            for t in range(begin + 1, begin + decisions + 1):
                observation, reward, terminated = oracle.step(int(actions[t - 1, b]))
                assert terminated == (t == begin + decisions)
                assert (steps.ended[t, b], steps.last[t, b]) == (terminated, False)
                assert (steps.reward[t, b], steps.discount[t, b]) == (reward, 1 - terminated)
                values = {"success": reward == 1.0, "return": reward, "length": decisions}
                for name, value in values.items():
                    assert steps.metrics[name][t, b] == (value if terminated else 0.0)
                if not terminated:
                    assert steps.observation[t, b].tolist() == observation
            episodes += 1
    return episodes


@pytest.mark.parametrize(
    ("env", "decisions"),
    [
        (MemoryChain(1, 1), 2),
        (MemoryChain(7, 3), 8),
        (MemoryChain(3, 4, stream_seed=0), 4),
        (DistributedMemory(1, 1), 1),
        (DistributedMemory(5, 3), 5),
        (DistributedMemory(7, 7, "fresh"), 7),
        (DistributedMemory(10, 3, "fresh"), 10),
        (DistributedMemory(9, 5, stream_seed=0), 9),
    ],
)
def test_a_stream_of_random_episodes_equals_the_transcription(env, decisions):
    actions = np.random.default_rng(1).choice([0, 1, 2], (60, BATCH), p=[0.45, 0.45, 0.1])
    steps = roll(env, actions)
    assert compare(env, steps, actions, decisions) == BATCH * (60 // decisions)
    answers = steps.reward[1:][steps.ended[1:]]
    assert 0.3 < (answers == 1).mean() < 0.6, "right and wrong ones must occur"


@pytest.mark.parametrize("context", [[0, 1, 1], [1, 0, 1], [0, 0, 0]])
@pytest.mark.parametrize("query", [0, 2])
@pytest.mark.parametrize("action", [0, 1, 2, -1])
def test_a_forced_chain_shows_its_bits_twice_and_asks_at_the_end(context, query, action):
    env = MemoryChain(4, 3)
    state, first = env.reset_to(context, query)
    assert first.tolist() == [1.0, 0.0, *(2.0 * bit - 1 for bit in context)]
    answers = []
    for _ in range(5):
        state, transition = env.step(state, jnp.int32(action), KEY)
        answers.append(transition)
    seen, blank = [answer.observation.tolist() for answer in answers], [0.0] * 3
    assert seen[0] == first.tolist()
    assert seen[1:] == [[0.75, 0, *blank], [0.5, 0, *blank], [0.25, query, *blank], [0, 0, *blank]]
    assert [bool(answer.terminated) for answer in answers] == [False] * 4 + [True]
    assert not any(bool(answer.truncated) for answer in answers)
    reward = 1.0 if action == context[query] else -1.0
    assert [float(answer.reward) for answer in answers] == [0.0] * 4 + [reward]


def test_a_forced_distributed_memory_shows_each_bit_once():
    env = DistributedMemory(4, 3, "fresh")
    state, first = env.reset_to([1, 0, 1], [0, 1, 3])
    seen = [first.tolist()]
    for action in (0, 0, 0, 1):
        state, transition = env.step(state, jnp.int32(action), KEY)
        seen.append(transition.observation.tolist())
    assert seen == [
        [1.0, 0, 1, 0, 0], [0.75, 0, 0, -1, 0], [0.5, 0, 0, 0, 0], [0.25, 0, 0, 0, 1], [0] * 5,
    ]  # fmt: skip
    assert (float(transition.reward), bool(transition.terminated)) == (1.0, True)
    assert env.reset_to([1, 0, 1])[0].times.tolist() == list(fixed_schedule(4, 3))


@pytest.mark.parametrize("env", [MemoryChain(6, 3), DistributedMemory(6, 3, "fresh")])
def test_no_action_changes_what_is_seen(env):
    rng = np.random.default_rng(0)
    steps = [roll(env, rng.choice(3, (30, 8)), seed=5) for _ in range(2)]
    np.testing.assert_array_equal(steps[0].observation, steps[1].observation)
    assert (steps[0].reward != steps[1].reward).any()
    for at in steps:
        assert not at.reward[~at.ended].any() and (np.abs(at.reward[at.ended]) == 1).all()


def test_the_clock_is_rounded_once_from_float64():
    for length in (3, 7, 49, 90, 100):
        expected = [np.float32(1 - t / length) for t in range(length + 1)]
        assert clock(length).tolist() == expected
    seen = roll(MemoryChain(49), np.zeros((49, 1), int)).observation[1:, 0, 0]
    np.testing.assert_array_equal(seen, clock(49)[:-1])


def test_bits_queries_and_times_are_fair_and_independent():
    chain = roll(MemoryChain(1, 3), np.zeros((800, BATCH), int))
    opening = chain.observation[chain.start]
    draws = len(opening)
    noise = 4 * 0.5 / draws**0.5
    assert abs((opening[:, 2:] > 0).mean(0) - 0.5).max() < noise
    assert abs(np.corrcoef(opening.T[1:]) - np.eye(4)).max() < 2 * noise
    for query in range(3):
        assert abs((opening[:, 1] == query).mean() - 1 / 3) < noise
    keys = jax.random.split(KEY, 4000)
    times = np.asarray(jax.vmap(DistributedMemory(6, 3, "fresh").reset)(keys)[0].times)
    assert (np.diff(times, axis=1) > 0).all() and times.min() == 0 and times.max() == 5
    chosen = np.bincount(times.ravel(), minlength=6) / len(times)
    assert abs(chosen - 0.5).max() < 4 * 0.5 / len(times) ** 0.5
    assert len({tuple(row) for row in times}) == 20


def test_the_published_schedules_leave_the_global_generator_alone():
    expected = {
        (5, 3): [0, 3, 4],
        (30, 3): [12, 24, 27],
        (30, 5): [12, 13, 24, 27, 28],
        (30, 7): [1, 8, 12, 13, 16, 24, 27],
        (30, 25): [t for t in range(30) if t not in (3, 5, 10, 17, 18)],
    }
    before = random.getstate()
    for (length, bits), times in expected.items():
        assert list(fixed_schedule(length, bits)) == times
    assert DistributedMemory(30, 5).reset(KEY)[0].times.tolist() == expected[30, 5]
    assert random.getstate() == before


def test_a_fixed_stream_survives_the_resets_and_begins_again():
    env = MemoryChain(2, 4, stream_seed=3, stream_length=5)
    steps = roll(env, np.zeros((3 * 11, 2), int), seed=8)
    shown = steps.observation[steps.start].reshape(12, 2, 6)
    np.testing.assert_array_equal(shown[:, 0], shown[:, 1])
    contexts = bsuite_stream(4, 3, 5, True).contexts
    np.testing.assert_array_equal(shown[:, 0, 2:] > 0, contexts[np.arange(12) % 5] == 1)
    for episode in (0, 4, 5, 13):
        state, _ = env.reset_at(episode)
        assert state.drawn.context.tolist() == contexts[episode % 5].tolist()
    state, _ = env.next_episode(env.reset_to([0] * 4)[0], KEY)
    assert state.drawn.context.tolist() == contexts[0].tolist(), "a forced one is none of them"


def test_a_longer_stream_begins_as_a_shorter_one():
    for with_query in (True, False):
        long, short = (bsuite_stream(4, 0, length, with_query) for length in (100, 7))
        np.testing.assert_array_equal(long.contexts[:7], short.contexts)
        np.testing.assert_array_equal(long.queries[:7], short.queries)
    assert bsuite_stream(4, 0, 100, True).queries.max() == 3
    with pytest.raises(ValueError, match="read-only"):
        short.contexts[0, 0] = 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MemoryChain(0), "memory_length must be an integer of at least 1, got 0"),
        (lambda: MemoryChain(3, 0), "num_bits must be an integer of at least 1, got 0"),
        (lambda: MemoryChain(num_bits=2.5), "num_bits must be an integer of at least 1, got 2.5"),
        (lambda: MemoryChain(stream_seed=True), "stream_seed .* got True"),
        (lambda: MemoryChain(stream_seed=-1), "stream_seed .* at least 0, got -1"),
        (lambda: MemoryChain(stream_seed=2**32), "stream_seed must be at most 4294967295"),
        (lambda: MemoryChain(stream_length=0), "stream_length .* at least 1, got 0"),
        (lambda: MemoryChain().reset_at(0), "needs a fixed stream: give stream_seed"),
        (lambda: MemoryChain(3, 2).reset_to([1]), r"num_bits 2 bits, got shape \(1,\)"),
        (lambda: DistributedMemory(5, 4), "must be odd.*got 4; nearest: 3, 5"),
        (lambda: DistributedMemory(3, 5), "num_bits must be at most memory_length 3.*got 5"),
        (lambda: DistributedMemory(schedule="fixd"), "'fixd'; did you mean 'fixed'"),
        (lambda: DistributedMemory(5, 3).reset_to([1, 0, 1], [1]), r"times .*got shape \(1,\)"),
    ],
)
def test_bad_values_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
