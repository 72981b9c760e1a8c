"""The forms of a chunk that are parallel in time equal the definition's steps."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import clew.memory.relit
from clew.errors import UserError
from clew.lab.studies.tmaze.models import PublishedReLiT
from clew.memory import AbstractMemory, kernels, make_memory
from clew.memory.arelit import ApproximateLinearAttention
from clew.memory.parts import chunkwise, linear_recurrence
from clew.memory.parts.chunkwise import score
from clew.memory.parts.matrix_recurrence import (
    Erase,
    MatrixInputs,
    advance_chunk,
    choose_matrix_form,
    solve_unit_lower,
)
from clew.memory.parts.scans import linear_scan
from clew.memory.relit import GatedLinearAttention
from memory_forms import (
    assert_equal_forms,
    assert_finite_and_equal,
    forms,
    largest,
    with_gates,
)
from memory_samples import episodes, quick_compilation, sample
from slow_cases import fast_only

__all__ = ["quick_compilation"]

SLOW = pytest.mark.slow
# Sizes of pieces and chunks that divide 37 steps and that do not.
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("relit", "chunkwise", {}),
    ("relit", "associative", {"decay": "joint"}),
    ("arelit", "chunkwise", {"frequencies": "odd_wave", "r": 3}),
    ("arelit", "associative", {"tick": "carried"}),
]
FAST = [pytest.param(*case, marks=() if case is CASES[0] else SLOW, id=str(case)) for case in CASES]
MATRICES = ("gated_delta_net", "rwkv7", "mlstm", "retention", "gla")
"""Memories whose state is a matrix, each with another kind of chunk."""


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of 4 steps and pieces of 16, so that a short sequence has several of either."""
    jax.clear_caches()
    monkeypatch.setattr(chunkwise, "CHUNK", 4)
    monkeypatch.setattr(chunkwise, "PIECE", 16)
    for attention in (GatedLinearAttention, ApproximateLinearAttention):
        monkeypatch.setattr(attention, "states_at_once", 16)
    yield
    jax.clear_caches()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=SLOW)])
@pytest.mark.parametrize(("name", "backend", "options"), FAST)
def test_a_parallel_form_is_its_steps(
    name: str, backend: str, options: dict[str, Any], precision: str
) -> None:
    """Values and all gradients, including those of the state and into it."""
    with jax.enable_x64(precision == "float64"), jax.numpy_dtype_promotion("standard"):
        found, steps = forms(name, options, precision, (backend, "xla"))
        assert_equal_forms(found, steps, precision)


@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=SLOW)])
@pytest.mark.parametrize("name", fast_only(MATRICES, "gated_delta_net"))
def test_chunks_of_matrices_are_their_steps(name: str, precision: str) -> None:
    """Likewise; they are used if there is no kernel."""
    with jax.enable_x64(precision == "float64"), jax.numpy_dtype_promotion("standard"):
        found, steps = forms(name, {}, precision, ("chunkwise", "xla"))
        assert_equal_forms(found, steps, precision)


@pytest.mark.parametrize("size", [pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW), 8])
def test_halves_have_every_pair_once(size: int) -> None:
    """Scores and sums of the equations, pair by pair, with gates at 0 and at 1, and starts."""
    random, time, heads, wide = np.random.default_rng(size), 3 * size, 2, 3
    q, k, v, gate = (random.standard_normal((time, heads, wide)) for _ in range(4))
    gate = np.where(random.random(gate.shape) < 0.2, np.sign(gate) > 0, np.abs(np.sin(gate)))
    starts = random.random(time) < 0.2
    keep = np.where(starts[:, None, None], 0.0, 1 - gate)
    expected = np.zeros_like(v)
    for t in range(time):
        for j in range(t // size * size, t + 1):
            decay = np.prod(keep[j + 1 : t + 1], axis=0)
            expected[t] += np.sum(q[t] * k[j] * decay, axis=-1, keepdims=True) * v[j] * decay
    with jax.enable_x64(True):
        decays = chunkwise.decays(jnp.asarray(gate), jnp.asarray(starts), size)
        cuts = [chunkwise.cut(jnp.asarray(x), size) for x in (q, k, v)]
        out = chunkwise.weigh(chunkwise.score(*cuts[:2], decays), cuts[2], decays)
        assert np.allclose(chunkwise.join(out, time), expected, rtol=1e-12, atol=1e-12)


def test_a_linear_scan_passes_nothing_by_a_start() -> None:
    """Not even NaN or infinity, in values and in gradients."""
    keep, add = jnp.full((7, 1), 0.5), jnp.arange(7.0)[:, None].at[2].set(jnp.nan)
    starts = jnp.arange(7) == 4

    @jax.jit
    def states(keep: Any, add: Any, init: Any) -> Any:
        return linear_scan(keep, add, init, starts)

    found, pull = jax.vjp(states, keep.at[1].set(jnp.inf), add, jnp.full(1, jnp.nan))
    assert np.allclose(found[4:, 0], [4.0, 7.0, 9.5])
    gradients = pull(jnp.zeros((7, 1)).at[6].set(1.0))
    assert np.allclose(gradients[1][4:, 0], [0.25, 0.5, 1.0])
    assert np.allclose(gradients[0][5:, 0], [2.0, 7.0])


@pytest.mark.slow
@pytest.mark.parametrize("gate", [-200.0, 30.0])
def test_saturated_gates_are_those_of_steps(gate: float) -> None:
    """Where cumulative products are 0 or 1 and their quotients are not numbers."""
    assert_finite_and_equal(*(with_gates("relit", form, gate) for form in ("chunkwise", "xla")))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(("name", "backend", "options"), FAST)
def test_what_is_not_finite_stays_in_its_episode(
    name: str, backend: str, options: dict[str, Any]
) -> None:
    """From the observation that contains it to the next start, and nowhere else."""
    memory = sample(name, num_layers=1, backend=backend, **options)
    xs, starts = episodes(24, seed=3)
    starts[:], spoiled = np.arange(24) == 19, np.zeros(24, bool)
    spoiled[6:19] = True
    unroll = jax.jit(lambda xs: memory.unroll(memory.init_state(), xs, jnp.asarray(starts)))
    clean = unroll(xs)
    bad = unroll(np.where(np.arange(24)[:, None] == 6, np.nan, xs))
    assert np.array_equal(np.isnan(bad[1]).all(axis=1), spoiled)
    assert largest((bad[0], bad[1][~spoiled]), (clean[0], clean[1][~spoiled])) < 1e-6


def test_accelerators_have_a_parallel_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default; the joint decay, which is not a matrix product, uses a scan."""
    small: dict[str, Any] = {
        "num_layers": 1,
        "hidden_size": 4,
        "num_heads": 1,
        "head_size": 2,
        "eta": 1,
    }
    make: dict[str, Any] = {"input_size": 3, "key": jax.random.key(0)}
    relit = make_memory("relit", **make, **small)
    joint = make_memory(PublishedReLiT, **make, **small, decay="joint")
    assert kernels.choose_form("auto") in ("kernel", "xla")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert kernels.choose_form("auto") == choose_matrix_form("auto") == "chunkwise"
    assert kernels.choose_form("xla") == "xla"
    with kernels.without_kernels():
        assert kernels.choose_form("auto") == "xla"

    def refuse(*_: Any) -> Any:
        raise AssertionError("not the form for an accelerator")

    monkeypatch.setattr(linear_recurrence, "checkpointed_scan", refuse)
    monkeypatch.setattr(clew.memory.relit, "relit_recurrence", refuse)
    scored: list[int] = []
    monkeypatch.setattr(chunkwise, "score", lambda *args: scored.append(1) or score(*args))
    for memory, times in ((relit, 1), (joint, 0)):
        scored.clear()
        jax.eval_shape(memory.unroll, memory.init_state(), jnp.zeros((3, 3)), jnp.zeros(3, bool))
        assert len(scored) == times
    with pytest.raises(UserError, match="'associative' is the parallel form"):
        make_memory(PublishedReLiT, **make, decay="joint", backend="chunkwise")
    with pytest.raises(UserError, match="backend"):
        make_memory("lstm", input_size=3, key=jax.random.key(0), backend="chunkwise")


@pytest.mark.parametrize("size", [1, 7, 32])
def test_triangular_systems_are_solved_by_halves(size: int) -> None:
    """The result is NumPy's, whatever is on the diagonal and above it."""
    random = np.random.default_rng(0)
    lower = random.standard_normal((2, size, size), np.float32) / np.float32(size**0.5)
    right = random.standard_normal((2, size, 3), np.float32)
    exact = np.linalg.solve(np.tril(lower, -1) + np.eye(size), right)
    assert largest(solve_unit_lower(jnp.asarray(lower), jnp.asarray(right)), exact) < 1e-5


@pytest.mark.parametrize("name", ["gated_delta_net", pytest.param("rwkv7", marks=SLOW)])
def test_no_chunk_waits_for_a_triangular_solver(name: str) -> None:
    """On a CPU it could wait forever, see `solve_unit_lower`."""
    memory = sample(name, num_layers=1, backend="chunkwise")
    xs, starts = episodes(40, seed=5)

    def total(xs: Any) -> Array:
        return jnp.sum(memory.unroll(memory.init_state(), xs, starts)[1])

    assert "triangular_solve" not in str(jax.make_jaxpr(jax.grad(total))(xs))


@SLOW
def test_forward_mode_goes_through_chunks() -> None:
    """A compiled kernel does not support it."""
    memory = sample("arelit", num_layers=1, backend="chunkwise")
    xs, starts = episodes(7, seed=5)

    def outputs(xs: Any) -> Any:
        return memory.unroll(memory.init_state(), xs, jnp.asarray(starts))[1]

    _, moved = jax.jvp(outputs, (xs,), (xs,))
    _, pull = jax.vjp(outputs, xs)
    assert float(jnp.sum(pull(moved)[0] * xs)) == pytest.approx(float(jnp.sum(moved**2)), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gla", "relit"])
def test_the_gradient_of_a_batch_does_not_end_the_process(name: str) -> None:
    """Sums over more than eight axes used to: XLA's library for CPUs supports no more."""
    memory = make_memory(name, input_size=3, key=jax.random.key(0), backend="chunkwise")
    xs, starts = jnp.ones((6, 50, 3)), jnp.zeros(50, bool)

    @eqx.filter_jit
    @eqx.filter_grad
    def slope(memory: AbstractMemory) -> Array:
        outs = jax.vmap(lambda x: memory.unroll(memory.init_state(), x, starts)[1])(xs)
        return jnp.sum(outs**2)

    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(slope(memory)))


@pytest.mark.parametrize("backend", ["xla", "chunkwise", "auto"])
def test_what_no_chunk_knows_together_is_refused(backend: Any) -> None:
    """A step would accept it, so a chunk would silently compute something else."""
    keys, head = jnp.ones((3, 1, 2)), jnp.zeros((3, 1))
    erase = Erase(keys, keys)
    for inputs, said in (
        (MatrixInputs(keys, keys, keys, -keys, rate=head), "needs one log_keep per head"),
        (MatrixInputs(keys, keys, keys, head, erase=erase), "needs one log_keep per key"),
        (MatrixInputs(keys, keys, keys, -keys, turn=keys[..., :1], erase=erase), "nor turn"),
    ):
        with pytest.raises(UserError, match=said):
            advance_chunk(backend, jnp.zeros((1, 2, 2)), inputs, jnp.zeros(3, bool))
