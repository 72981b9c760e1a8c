"""Returns without a memory: formulas equal counting, and the published floors."""

import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import clew.envs.gymnasium_api  # noqa: F401
from clew.envs import AutoReset, DistributedMemory
from clew.errors import UserError
from clew.lab.studies.makkink.floors import (
    distributed_memory_floors,
    memory_chain_floors,
    one_bit_return,
)

EPISODES = 100
PUBLISHED_MEMORYLESS = {
    (3, 3): 0.64,
    (5, 3): 0.64,
    (10, 3): 0.64,
    (5, 5): 0.34,
    (10, 5): 0.34,
    (10, 7): 0.28,
    (10, 9): 0.08,
    (30, 25): 0.24,
}
PUBLISHED_CONSTANT = {(30, 3): 0.04, (30, 5): 0.02, (30, 7): -0.06, (30, 9): -0.1, (30, 17): 0.06}


@pytest.mark.parametrize(
    "setting", [(3, 3), (5, 5), (10, 7), (10, 9), (30, 25)], ids=lambda n: f"{n[0]}-{n[1]}"
)
def test_answering_with_the_last_bit_earns_the_published_memoryless_return(setting):
    """One JAX environment, acting on its observations, in the first 100 episodes of the stream."""
    stream = AutoReset(DistributedMemory(*setting, stream_seed=0))

    def act(carry, key):
        state, seen = carry
        state, then = stream.step(state, (seen.observation[-1] > 0).astype(jnp.int32), key)
        return (state, then), then.metrics["return"]

    @jax.jit
    def earned():
        keys = jax.random.split(jax.random.key(1), EPISODES * setting[0])
        return jax.lax.scan(act, stream.reset(jax.random.key(0)), keys)[1]

    assert float(np.sum(earned())) / EPISODES == pytest.approx(PUBLISHED_MEMORYLESS[setting])


@pytest.mark.parametrize("setting", PUBLISHED_MEMORYLESS, ids=lambda n: f"{n[0]}-{n[1]}")
def test_so_it_does_in_the_gymnasium_form_and_by_the_floors(setting):
    length, bits = setting
    env = gymnasium.make(
        "clew/DistributedMemory-v0", memory_length=length, num_bits=bits, stream_seed=0
    )
    total = 0.0
    for _ in range(EPISODES):
        observation, _ = env.reset()
        terminated = False
        while not terminated:
            observation, reward, terminated, *_ = env.step(int(observation[-1] > 0))
            total += float(reward)
    assert total / EPISODES == pytest.approx(PUBLISHED_MEMORYLESS[setting])
    floors = distributed_memory_floors(length, bits, stream_seed=0)
    assert floors["memoryless"] == pytest.approx(PUBLISHED_MEMORYLESS[setting])


def test_the_floors_of_the_published_episodes_where_no_bit_is_seen_last():
    for setting, constant in PUBLISHED_CONSTANT.items():
        floors = distributed_memory_floors(*setting, stream_seed=0)
        assert floors == pytest.approx({"constant": constant, "memoryless": constant})


def test_the_degenerate_policies_of_the_published_memory_sizes():
    constants = {3: 0.24, 5: 0.08, 7: -0.12, 8: -0.26, 10: 0.0, 12: -0.12, 25: 0.0, 30: -0.06}
    majorities = {3: 0.58, 5: 0.28, 7: 0.16}
    for bits, constant in constants.items():
        floors = memory_chain_floors(2, bits, stream_seed=0)
        assert floors["constant"] == floors["memoryless"] == pytest.approx(constant)
        if bits in majorities:
            assert floors["majority"] == pytest.approx(majorities[bits])
    for length in (3, 9):
        assert abs(memory_chain_floors(length, 1, stream_seed=0)["constant"]) == pytest.approx(0.02)
    assert memory_chain_floors(1, 1, stream_seed=0)["memoryless"] == 1.0


@pytest.mark.parametrize("bits", range(1, 10))
def test_one_bit_and_the_majority_agree_as_often_as_counting_says(bits):
    total = 0
    for signs in itertools.product((-1, 1), repeat=bits):
        majority = 1 if sum(signs) >= 0 else -1
        total += majority * signs[-1]
    assert one_bit_return(bits) == total / 2**bits
    expected = {"constant": 0.0, "majority": one_bit_return(bits), "memoryless": 0.0}
    assert memory_chain_floors(2, bits) == expected


def test_the_expected_floors_of_the_distributed_memory():
    values = {3: 0.5, 5: 0.375, 7: 0.3125, 9: 0.273, 17: 0.196, 25: 0.161}
    for bits, value in values.items():
        assert one_bit_return(bits) == pytest.approx(value, abs=5e-4)
        assert distributed_memory_floors(bits, bits)["memoryless"] == one_bit_return(bits)
        fresh = distributed_memory_floors(4 * bits, bits, "fresh")["memoryless"]
        assert fresh == pytest.approx(one_bit_return(bits) / 4)
    assert distributed_memory_floors(30, 3)["memoryless"] == 0.0
    long = distributed_memory_floors(10, 5, stream_seed=0, episodes=10_000)
    assert long == pytest.approx({"constant": 0.0, "memoryless": 0.375}, abs=0.04)


def test_fresh_schedules_earn_the_expected_floor():
    env = DistributedMemory(6, 3, "fresh")
    keys = jax.random.split(jax.random.key(2), 4000)
    state, _ = jax.jit(jax.vmap(env.reset))(keys)
    shown = np.asarray((state.times == 5).any(1))
    context = np.asarray(state.drawn.context)
    answer = np.where(shown, context[:, -1], 1)
    right = answer == (context.sum(1) >= 2)
    expected = distributed_memory_floors(6, 3, "fresh")["memoryless"]
    assert 2 * right.mean() - 1 == pytest.approx(expected, abs=4 / len(right) ** 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: one_bit_return(0), "num_bits must be an integer of at least 1, got 0"),
        (lambda: memory_chain_floors(0, 1), "memory_length .* got 0"),
        (lambda: memory_chain_floors(2, 3, stream_seed=0.5), "stream_seed .* got 0.5"),
        (lambda: distributed_memory_floors(5, 2), "num_bits must be odd"),
        (lambda: distributed_memory_floors(5, 3, "frehs"), "did you mean 'fresh'"),
    ],
)
def test_bad_values_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
