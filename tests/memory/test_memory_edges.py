"""Unusual uses: donated states, second derivatives, Python scalars, odd lengths."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from clew.errors import UserError
from clew.memory import MEMORIES, make_memory
from clew.memory.base import scan_steps
from clew.memory.gru import GRU
from clew.memory.laws import check
from memory_samples import DIFFERENT, INPUT_SIZE, SMALL, sample
from slow_cases import fast_only


@pytest.mark.parametrize("name", MEMORIES)
def test_a_state_can_be_donated_and_starts_may_be_plain(name: str) -> None:
    """No array appears twice in a first state; True is a start, just like an array of it."""
    state = sample(name).init_state()
    places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(state) if leaf.size]
    assert len(set(places)) == len(places)
    memory, x, start = sample(name, num_layers=1), np.ones(INPUT_SIZE, np.float32), jnp.array(True)
    state = memory.init_state()
    plain, array = jax.jit(lambda state: [memory.step(state, x, s)[1] for s in (True, start)])(
        state
    )
    np.testing.assert_array_equal(plain, array)
    with pytest.raises(UserError, match="expected x as an array, got"):
        memory.step(state, [1.0] * INPUT_SIZE, True)


@pytest.mark.parametrize(
    ("name", "options"),
    fast_only(
        [("elman", {}), *((n, {"backend": b}) for n in ("lstm", "gru") for b in ("xla", "kernel"))],
        ("elman", {}),
        ("gru", {"backend": "kernel"}),
    ),
)
def test_a_cell_refuses_a_second_derivative(name: str, options: dict[str, Any]) -> None:
    """Its custom backward pass has no derivative; step by step there is one."""
    memory = sample(name, num_layers=1, **options)
    xs, starts = jax.random.normal(jax.random.key(1), (4, INPUT_SIZE)), jnp.zeros(4, bool)

    def curvature(unroll: Any, memory: Any) -> Any:
        def loss(xs: Any) -> Any:
            return jnp.sum(unroll(memory, memory.init_state(), xs, starts)[1])

        return jax.jit(jax.grad(lambda xs: jnp.sum(jax.grad(loss)(xs) ** 2)))(xs)

    with pytest.raises(UserError, match="has no derivative; clew.memory.base.scan_steps"):
        curvature(type(memory).unroll, memory)
    assert np.abs(curvature(scan_steps, memory)).max() > 1e-3


def test_forward_mode_goes_through_the_steps_of_a_window() -> None:
    memory = sample("transformer_xl", num_layers=1, backend="xla")
    xs, starts = jax.random.normal(jax.random.key(1), (7, INPUT_SIZE)), jnp.arange(7) == 4

    def moved(unroll: Any) -> Any:
        def outputs(xs: Any) -> Any:
            return unroll(memory, memory.init_state(), xs, starts)[1]

        return jax.jit(lambda xs: jax.jvp(outputs, (xs,), (xs,))[1])(xs)

    np.testing.assert_allclose(moved(scan_steps), moved(type(memory).unroll), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    fast_only(
        [
            *((name, {}) for name in MEMORIES),
            ("transformer_xl", {"norm": "before"}),
            ("gtrxl", {"gate": "residual"}),
            ("linear_transformer", {"gate": "residual"}),
            ("universal", {"coordinates": False, "halting": False}),
            ("integrated", {"coordinates": False}),
            ("mlstm", {"gate": "gru"}),
        ],
        *((name, {}) for name in DIFFERENT),
        ("transformer_xl", {"norm": "before"}),
        ("mlstm", {"gate": "gru"}),
    ),
)
def test_observations_of_zeros_make_no_steep_first_gradient(
    name: str, options: dict[str, Any]
) -> None:
    """Also after a non-zero one; norms of zeros had slopes of a thousand, multiplied together."""
    made = SMALL[name] | options
    memory = make_memory(name, input_size=INPUT_SIZE, key=jax.random.key(0), **made)
    starts = jnp.zeros(16, bool).at[0].set(True)
    read = jax.random.normal(jax.random.key(2), (memory.output_size,))

    @eqx.filter_jit
    def steepness(memory: Any, xs: Any) -> Any:
        def loss(memory: Any) -> Any:
            return jnp.mean(memory.unroll(memory.init_state(), xs, starts)[1] @ read)

        return optax.tree.norm(jax.tree.map(jnp.abs, eqx.filter_grad(loss)(memory)))

    usual = steepness(memory, jax.random.normal(jax.random.key(1), (16, INPUT_SIZE)))
    zeros = jnp.zeros((16, INPUT_SIZE))
    for xs in (zeros, zeros.at[0, 0].set(1.0)):
        assert steepness(memory, xs) < 100 * usual


def test_a_chunk_that_does_not_fill_its_pieces_has_a_gradient_without_epsilon() -> None:
    memory = sample("linear_transformer", epsilon=0.0)
    xs, starts = jax.random.normal(jax.random.key(1), (65, INPUT_SIZE)), jnp.zeros(65, bool)
    slope = eqx.filter_grad(lambda m: jnp.sum(m.unroll(m.init_state(), xs, starts)[1]))
    gradient = eqx.filter_jit(slope)(memory)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_rates_at_the_ends_of_what_is_allowed() -> None:
    """Every allowed ring of LRU has initial rates; a geometric mean of tiny steps is one."""
    key = jax.random.key(0)
    slow = make_memory("lru", input_size=3, key=key, r_min=0.9999999, r_max=1.0, state_size=64)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(slow, eqx.is_array)))
    with np.errstate(all="raise", under="ignore"):
        heads = {"hidden_size": 4, "num_heads": 1024, "head_size": 2, "num_layers": 1}
        many = make_memory("retention", input_size=3, key=key, **heads)
        eqx.filter_jit(many.step)(many.init_state(), jnp.ones(3), jnp.array(True))
    make_memory("s5", input_size=3, key=key, dt_min=1e-30, dt_max=1e-30)


def test_a_failure_without_words_is_reported() -> None:
    class Failing(GRU):
        def step(self, state: Any, x: Any, start: Any) -> Any:
            raise AssertionError

    class Without(GRU):
        def unroll_with_metrics(self, state: Any, xs: Any, starts: Any) -> Any:
            return *self.unroll(state, xs, starts), None

    for kind, says in ((Failing, "step raises AssertionError"), (Without, "not a dict")):
        report = check(kind(3, key=jax.random.key(0)), raise_on_failure=False)
        assert not report.passed and says in str(report.failures[0])
