"""A memory that is told the number of the step reads it beside the observation."""

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.told_the_step import ToldTheStep

from clew.memory.parts.positions import sinusoids


def test_it_is_the_inner_memory_on_observations_and_numbers() -> None:
    memory = ToldTheStep(3, key=jax.random.key(0), of="gru", options={"hidden_size": 5})
    xs, starts = jax.random.normal(jax.random.key(1), (6, 3)), np.arange(6) == 4
    state = memory.init_state()
    numbers = sinusoids(np.array([0, 1, 2, 3, 0, 1]), 32)
    seen = jnp.concatenate([xs, numbers], axis=-1)
    after, ys = memory.unroll(state, xs, starts)
    inner, expected = memory.inner.unroll(memory.inner.init_state(), seen, starts)
    np.testing.assert_allclose(ys, expected, atol=1e-6)
    np.testing.assert_allclose(after[1], inner, atol=1e-6)
    assert after[0] == 2


def test_it_may_be_told_the_number_modulo_a_period() -> None:
    options = {"of": "gru", "options": {"hidden_size": 5}}
    key, xs, starts = jax.random.key(0), jnp.zeros((6, 3)), np.zeros(6, bool)
    memory = ToldTheStep(3, key=key, period=2, **options)
    seen = jnp.concatenate([xs, sinusoids(np.array([0, 1, 0, 1, 0, 1]), 32)], axis=-1)
    ys = memory.unroll(memory.init_state(), xs, starts)[1]
    expected = memory.inner.unroll(memory.inner.init_state(), seen, starts)[1]
    np.testing.assert_allclose(ys, expected, atol=1e-6)
