"""The Gymnasium forms of memory chain and distributed memory: the checker, and the same rules."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from clew.envs import DistributedMemory, MemoryChain
from clew.envs.distributed_memory import fixed_schedule
from clew.envs.gymnasium_api import JaxTaskEnv
from clew.envs.recall import bsuite_stream
from clew.errors import UserError
from oracles.recall import DistributedMemoryOracle, MemoryChainOracle
from streams import roll

CHAIN, DISTRIBUTED = "clew/MemoryChain-v0", "clew/DistributedMemory-v0"
SETTINGS = [
    (CHAIN, {"memory_length": 1}),
    (CHAIN, {"memory_length": 7, "num_bits": 4}),
    (CHAIN, {"memory_length": 3, "num_bits": 2, "stream_seed": 1}),
    (DISTRIBUTED, {"memory_length": 1, "num_bits": 1}),
    (DISTRIBUTED, {"memory_length": 6, "num_bits": 3}),
    (DISTRIBUTED, {"memory_length": 6, "num_bits": 3, "schedule": "fresh"}),
    (DISTRIBUTED, {"memory_length": 5, "num_bits": 5, "stream_seed": 0}),
]


def make(name: str, **options: Any) -> gymnasium.Env:
    """The registered environment, by the one-line form that registers it."""
    return gymnasium.make(f"clew.envs.gymnasium_api:{name}", **options)


def oracle_of(env: gymnasium.Env, info: dict[str, Any]) -> Any:
    """The transcription of the episode that `info` describes."""
    length = env.get_wrapper_attr("task").memory_length
    if "query" in info:
        return MemoryChainOracle(length, info["context"].tolist(), info["query"])
    return DistributedMemoryOracle(length, info["context"].tolist(), info["times"].tolist())


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_gymnasium_finds_nothing_to_complain_about(name, options):
    # Warnings are errors here, so a warning of the checker fails too.
    check_env(make(name, **options).unwrapped)


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_random_episodes_equal_the_transcription(name, options):
    env, rng, rewards = make(name, **options), np.random.default_rng(0), set()
    for episode in range(60):
        observation, info = env.reset(seed=episode if "stream_seed" not in options else None)
        oracle = oracle_of(env, info)
        assert observation.tolist() == oracle.reset()
        terminated, reward = False, 0.0
        while not terminated:
            assert info["success"] is False
            action = int(rng.integers(2))
            expected = oracle.step(action)
            observation, reward, terminated, truncated, info = env.step(action)
            assert (observation.tolist(), reward, terminated, truncated) == (*expected, False)
        assert info["success"] is (reward == 1.0)
        rewards.add(reward)
    assert rewards == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("env", "name", "options"),
    [
        (MemoryChain(4, 3, stream_seed=5), CHAIN, {}),
        (DistributedMemory(7, 3, stream_seed=5), DISTRIBUTED, {"schedule": "fixed"}),
    ],
)
def test_both_forms_play_the_same_stream(env, name, options):
    actions = np.random.default_rng(0).integers(2, size=(100, 1))
    in_jax = roll(env, actions)
    options |= {"memory_length": env.memory_length, "num_bits": 3, "stream_seed": 5}
    in_numpy = make(name, **options)
    observation, _ = in_numpy.reset()
    for t, action in enumerate(actions[:, 0], 1):
        observation, reward, terminated, *_ = in_numpy.step(action)
        assert (in_jax.reward[t, 0], in_jax.ended[t, 0]) == (reward, terminated)
        if terminated:
            observation, _ = in_numpy.reset()
        np.testing.assert_array_equal(in_jax.observation[t, 0], observation)


def test_a_seed_leads_the_stream_back_to_its_first_episode():
    env = make(CHAIN, num_bits=8, stream_seed=0)
    contexts = bsuite_stream(8, 0, 10_000, True).contexts
    for seed, expected in [(None, 0), (None, 1), (7, 0), (8, 0), (None, 1)]:
        assert env.reset(seed=seed)[1]["context"].tolist() == contexts[expected].tolist()
    forced = env.reset(options={"context": [1] * 8})[1]
    assert forced["query"] == bsuite_stream(8, 0, 10_000, True).queries[2]
    assert env.reset()[1]["context"].tolist() == contexts[3].tolist(), "a forced one counts too"


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_an_episode_can_be_forced(kind):
    chain = make(CHAIN, memory_length=5, num_bits=3)
    observation, info = chain.reset(options={"context": kind([1, 0, 0]), "query": np.int64(2)})
    assert observation.tolist() == [1, 0, 1, -1, -1]
    assert (info["context"].tolist(), info["query"]) == ([1, 0, 0], 2)
    spread = make(DISTRIBUTED, memory_length=6, num_bits=3, schedule="fresh")
    options = {"context": kind([0, 1, 1]), "times": kind([0, 2, 5])}
    observation, info = spread.reset(options=options)
    assert observation.tolist() == [1, 0, -1, 0, 0]
    assert (info["context"].tolist(), info["times"].tolist()) == ([0, 1, 1], [0, 2, 5])
    assert [int(spread.step(0)[0][2:].any()) for _ in range(5)] == [0, 1, 0, 0, 1]
    assert spread.step(1)[1] == 1.0
    fixed = make(DISTRIBUTED, memory_length=6, num_bits=3)
    info = fixed.reset(options={"context": kind([0, 1, 1])})[1]
    assert tuple(info["times"]) == fixed_schedule(6, 3)


def test_what_is_not_forced_is_drawn_by_the_seed():
    env = make(CHAIN, num_bits=6)
    drawn = env.reset(seed=4)[1]
    forced = env.reset(seed=4, options={"context": [0] * 6})[1]
    assert forced["query"] == drawn["query"] and not forced["context"].any()
    assert len({env.reset()[1]["query"] for _ in range(100)}) == 6
    spread = make(DISTRIBUTED, schedule="fresh")
    assert len({tuple(spread.reset()[1]["times"]) for _ in range(100)}) > 50


def test_seeds_keep_their_episodes():
    """The same seeds drew these in clew 0.1, whose Gymnasium forms were written in NumPy."""
    seeds = (0, None, 1)
    env = make(CHAIN, memory_length=3, num_bits=4)
    drawn = [env.reset(seed=seed)[1] for seed in seeds]
    assert [info["context"].tolist() for info in drawn] == [
        [1, 1, 1, 0],
        [0, 0, 0, 0],
        [0, 1, 1, 1],
    ]
    assert [info["query"] for info in drawn] == [1, 3, 0]
    env = make(DISTRIBUTED, memory_length=6, num_bits=3, schedule="fresh")
    drawn = [env.reset(seed=seed)[1] for seed in seeds]
    assert [info["context"].tolist() for info in drawn] == [[1, 1, 1], [0, 1, 1], [0, 1, 1]]
    assert [info["times"].tolist() for info in drawn] == [[0, 1, 4], [2, 3, 5], [0, 3, 5]]


def test_it_draws_a_line_of_text():
    env = make(CHAIN, memory_length=2, num_bits=3, render_mode="ansi")
    env.reset(options={"context": [1, 0, 1], "query": 2})
    assert env.render() == "|+-+| query 0, time 0 of 2\n"
    env.step(0)
    env.step(0)
    assert env.render() == "|...| query 2, time 1 of 2\n"
    assert JaxTaskEnv("memory_chain").render() is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            CHAIN,
            {"contex": [1]},
            "reset option of memory_chain 'contex'; did you mean 'context'",
        ),
        (CHAIN, {"times": [1]}, "reset option of memory_chain 'times'.*known: context, query"),
        (CHAIN, {"context": [1, 0]}, r"context must be num_bits 3 bits, .* got \[1, 0\]"),
        (CHAIN, {"context": [1, 0, 2]}, r"each 0 or 1, got \[1, 0, 2\]"),
        (CHAIN, {"context": [1, 0, -1.0]}, "each 0 or 1, got"),
        (CHAIN, {"context": "101"}, "each 0 or 1, got '101'"),
        (CHAIN, {"query": 3}, "query must be .* from 0 to 2, got 3"),
        (CHAIN, {"query": "1"}, "query must be .* from 0 to 2, got '1'"),
        (DISTRIBUTED, {"query": 0}, "reset option of distributed_memory 'query'"),
        (DISTRIBUTED, {"times": [0, 1, 2]}, "only if schedule is 'fresh'"),
    ],
)
def test_impossible_options_are_refused(name, options, message):
    env = make(name, memory_length=5, num_bits=3)
    with pytest.raises(UserError, match=message):
        env.reset(options=options)


@pytest.mark.parametrize("times", [[0, 1], [0, 0, 1], [2, 1, 0], [0, 1, 5], [-1, 0, 1], 3])
def test_impossible_times_are_refused(times):
    env = make(DISTRIBUTED, memory_length=5, num_bits=3, schedule="fresh")
    with pytest.raises(UserError, match="3 different integers from 0 to 4, in order, got"):
        env.reset(options={"times": times})
