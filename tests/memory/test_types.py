"""Types of numbers: every memory in bfloat16 and in double precision, and mixtures."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.errors import UserError
from clew.memory import MEMORIES, make_memory, scan_steps
from clew.memory.laws.runs import cast, unroll
from clew.memory.parts.blocks import LayerNorm, RMSNorm, standardise, unit
from memory_samples import INPUT_SIZE, SMALL, episodes, quick_compilation, sample
from slow_cases import fast_only

__all__ = ["quick_compilation"]

TIME = 20
QUICK = (("lstm", "bfloat16"), ("gtrxl", "bfloat16"), ("relit", "bfloat16"))
"""Memories with kernels, but none for this type; the kernels' own tests have float64."""
CASES = fast_only(itertools.product(MEMORIES, ("bfloat16", "float64")), *QUICK)

WIDER = {"bfloat16": {"complex64", "float32"}, "float64": {"complex128"}}
"""There is no complex bfloat16: complex64 replaces it; a matrix that sums many steps is float32."""

unroll_compiled, steps_compiled = eqx.filter_jit(unroll), eqx.filter_jit(scan_steps)


def types(tree: Any) -> list[str]:
    """The types of all arrays."""
    return [leaf.dtype.name for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize(("name", "precision"), CASES)
def test_a_memory_keeps_its_type(name: str, precision: str, ordinary_promotion: None) -> None:
    """If parameters are cast and observations are not, state and output keep the parameters' type.

    There are no kernels for bfloat16, so a chunk goes through XLA.
    """
    xs, starts = episodes(TIME)
    single = sample(name, num_layers=1)
    with jax.enable_x64(precision == "float64"):
        memory = cast(single, precision)
        state = memory.init_state()
        after, ys = unroll_compiled(memory, state, jnp.asarray(xs, jnp.float32), starts)
        stepped, zs = steps_compiled(memory, state, jnp.asarray(xs, jnp.float32), starts)
    assert types(after) == types(stepped) == types(state)
    floats = [kind for kind in types(state) if not kind.startswith("int")]
    assert set(floats) <= {precision, *WIDER[precision]}
    assert types((ys, zs)) == [precision, precision]
    expected = unroll_compiled(single, single.init_state(), xs, starts)[1]
    # A residual stream is several times as large as the output of a gate, and so is its rounding.
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(ys, zs, atol=0.05 * scale if precision == "bfloat16" else 1e-13)
    difference = np.max(np.abs(np.asarray(ys, np.float64) - expected))
    assert difference < (0.1 * scale if precision == "bfloat16" else 1e-5)


DRIFTING: dict[str, dict[str, Any]] = {
    "retention": {"num_heads": 8, "head_size": 4},
    "mlstm": {"num_heads": 8, "head_size": 4},
    "rwkv7": {"num_heads": 1, "head_size": 32},
    "rg_lru": {},
}
"""Memories, with options, whose outputs drifted while their sums over steps were bfloat16."""


@pytest.mark.parametrize("name", fast_only(DRIFTING, "retention"))
def test_half_precision_does_not_drift(name: str, ordinary_promotion: None) -> None:
    """After a thousand steps, only rounding separates the outputs."""
    memory = sample(name, num_layers=1, **DRIFTING[name])
    half = cast(memory, "bfloat16")
    single = jax.tree.map(lambda x: x.astype(jnp.float32), half, is_leaf=eqx.is_inexact_array)
    xs, starts = jax.random.normal(jax.random.key(1), (1000, INPUT_SIZE)), jnp.zeros(1000, bool)
    xs = xs.astype(jnp.bfloat16).astype(jnp.float32)
    expected = steps_compiled(single, single.init_state(), xs, starts)[1][-100:]
    for through in (unroll_compiled, steps_compiled):
        ys = through(half, half.init_state(), xs, starts)[1][-100:]
        error = np.mean(np.abs(np.asarray(ys, np.float32) - expected))
        assert error < 0.015 * np.mean(np.abs(expected))


@pytest.mark.parametrize(
    "function",
    [RMSNorm(4), LayerNorm(4), lambda x: standardise(x, 1e-5), lambda x: unit(x, 1e-12)],
)
def test_a_norm_has_a_gradient_in_half_precision(function: Any, ordinary_promotion: None) -> None:
    """For numbers whose squares, or powers of 1 / epsilon, overflow or underflow."""
    function = cast(function, "float16")
    for size in (1e-4, 1e-3, 1e3):
        x = (size * jnp.arange(1.0, 5.0)).astype(jnp.float16)
        y, gradient = jax.value_and_grad(lambda x: jnp.sum(function(x)[:2]))(x)
        assert y.dtype == gradient.dtype == jnp.float16
        assert np.isfinite(y) and np.isfinite(gradient).all()


@pytest.mark.parametrize("name", fast_only(["shm", "gated_delta_net"], "shm"))
def test_half_precision_divides_by_nothing(name: str, ordinary_promotion: None) -> None:
    """If all of a key is cut off, and if a head reads almost nothing."""
    options = SMALL[name] | {"num_layers": 1, "backend": "xla"}
    single = make_memory(name, input_size=INPUT_SIZE, key=jax.random.key(0), **options)
    memory = cast(single, "float16")
    xs, starts = episodes(TIME)

    @eqx.filter_jit
    def loss(memory: Any) -> Any:
        return jnp.sum(memory.unroll(memory.init_state(), jnp.asarray(xs), starts)[1])

    value, gradient = eqx.filter_value_and_grad(loss)(memory)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("name", ["lstm", "relit"])
def test_a_state_never_becomes_wider(name: str, ordinary_promotion: None) -> None:
    """Observations of float64 are read as float32; a narrower state is refused."""
    memory = sample(name, num_layers=1)
    xs, starts = episodes(TIME)
    with jax.enable_x64(True):
        wide = jnp.asarray(xs, jnp.float64)
        state, y = memory.step(memory.init_state(), wide[0], jnp.asarray(starts[0]))
        after, ys = memory.unroll(state, wide, jnp.asarray(starts))
        assert set(types((state, y, after, ys))) == {"float32"}
        grown: Any = cast(memory, "float64")
        with pytest.raises(UserError, match="type float64, but was given a state of type float32"):
            grown.step(memory.init_state(), wide[0], jnp.asarray(starts[0]))


@pytest.mark.parametrize(
    "name", fast_only(sorted({*MEMORIES} - {"universal", "integrated"}), "gru", "rwkv7")
)
def test_a_more_precise_state_stays_so(name: str, ordinary_promotion: None) -> None:
    """Only its types are computed; the loops of halting need one type throughout."""
    single = sample(name, num_layers=1)
    memory, state = cast(single, "bfloat16"), single.init_state()
    xs, starts = episodes(TIME)
    for way in (unroll, scan_steps):
        after, _ = eqx.filter_eval_shape(way, memory, state, jnp.asarray(xs), starts)
        assert types(after) == types(state)


def test_a_kernel_is_refused_what_it_does_not_read() -> None:
    """The error names the types; "auto" works without the kernel."""
    memory = cast(sample("gru", num_layers=1, backend="kernel"), "bfloat16")
    xs, starts = jnp.zeros((TIME, INPUT_SIZE), jnp.bfloat16), jnp.zeros(TIME, bool)
    with pytest.raises(UserError, match="not possible: .* float32 or float64, .* bfloat16"):
        memory.unroll(memory.init_state(), xs, starts)
