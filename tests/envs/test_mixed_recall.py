"""A variant of a mixed task equals that task alone, number for number."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.envs.distributed_memory import DistributedMemory
from clew.envs.memory_chain import MemoryChain
from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.lab.studies.makkink.mixed_recall import MixedRecall
from slow_cases import fast_only

SHORT = {"stream_length": 7}
MIXES = {
    "both": ("memory_chain", [{"memory_length": n, "num_bits": 5 - n} for n in (4, 1)]),
    "distributed": ("distributed_memory", [{"memory_length": 9, "num_bits": k} for k in (3, 7)]),
    "fresh": (
        "distributed_memory",
        [{"memory_length": 9, "num_bits": k, "schedule": "fresh"} for k in (9, 3)],
    ),
}
STEPS = 40


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", fast_only(["both", "distributed", "fresh"], "both"))
def test_every_variant_is_the_task_alone(name: str, seed: int | None) -> None:
    task, variants = MIXES[name]
    variants = [{**v, "stream_seed": seed, **SHORT} for v in variants]
    env = MixedRecall(task, variants)
    mixed = AutoReset(env)
    kind = MemoryChain if task == "memory_chain" else DistributedMemory
    for index, options in enumerate(variants):
        alone = AutoReset(kind(**options))
        keys = jax.random.split(jax.random.key(index), STEPS + 1)
        actions = jax.random.randint(jax.random.key(1), (STEPS,), 0, 2)
        first = mixed.opened(*env.reset_in(index, keys[0]))
        a = jax.jit(partial(_roll, mixed))(first, actions, keys[1:])
        b = jax.jit(partial(_roll, alone))(alone.reset(keys[0]), actions, keys[1:])
        bits = alone.observation_size
        assert 0 < float(b.metrics["success"].sum()) < float(b.ended.sum())
        assert (a.observation[:, bits:] == 0).all()
        a = a._replace(observation=a.observation[:, :bits])
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)


def _roll(stream, opened, actions, keys):
    state, first = opened

    def one(state, inputs):
        return stream.step(state, *inputs)

    _, then = jax.lax.scan(one, state, (actions, keys))
    return jax.tree.map(lambda f, t: jnp.concatenate([f[None], t]), first, then)


@pytest.mark.parametrize("name", ["both", "distributed"])
def test_episodes_by_number_are_those_of_the_task_alone(name: str) -> None:
    task, variants = MIXES[name]
    variants = [{**v, "stream_seed": 0} for v in variants]
    mixed = MixedRecall(task, variants)
    kind = MemoryChain if task == "memory_chain" else DistributedMemory
    for index, options in enumerate(variants):
        alone = kind(**options)
        for episode in (0, 99):
            state, seen = mixed.reset_at_in(index, episode)
            expected, shown = alone.reset_at(episode)
            bits = alone.episodes.num_bits
            assert seen[: shown.size].tolist() == shown.tolist()
            assert state.context[:bits].tolist() == expected.drawn.context.tolist()
            assert (int(state.query), int(state.episode)) == (int(expected.drawn.query), episode)


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be mixed"):
        MixedRecall("memory_chain", [{"stream_seed": 0}, {}])
    with pytest.raises(UserError, match="cannot be mixed"):
        MixedRecall("distributed_memory", [{"memory_length": 5}, {"memory_length": 7}])
    with pytest.raises(UserError, match="only in a fixed stream"):
        MixedRecall("memory_chain", [{}]).reset_at_in(0, 1)
