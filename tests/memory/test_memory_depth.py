"""ReZero, halting and stopped gradients: identities implied by the papers' formulas."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.errors import UserError
from clew.memory import make_memory, scan_steps
from memory_samples import INPUT_SIZE, episodes, quick_compilation, sample, variant
from oracles import universal
from slow_cases import fast_only

__all__ = ["quick_compilation"]

TIME = 12
SMALL = {"hidden_size": 12, "num_layers": 1, "num_heads": 2, "head_size": 4, "window": 5}


def outputs(memory: Any, xs: jax.Array, starts: jax.Array) -> jax.Array:
    """The outputs of a chunk from the initial state."""
    return eqx.filter_jit(lambda m, x, s: m.unroll(m.init_state(), x, s)[1])(memory, xs, starts)


def test_rezero_begins_as_the_identity() -> None:
    """Bachlechner et al. (2020), section 3: with every weight 0 the output is the embedding."""
    memory: Any = make_memory("rezero", input_size=INPUT_SIZE, key=jax.random.key(0), **SMALL)
    xs, starts = episodes(TIME)
    np.testing.assert_array_equal(outputs(memory, xs, starts), memory.embedding(xs))


def test_one_reading_is_a_transformer_xl() -> None:
    """Without halting, coordinates and a second reading the Universal Transformer is the same."""
    options = {**SMALL, "max_steps": 1, "halting": False, "coordinates": False}
    memory: Any = sample("universal", **options)
    plain: Any = sample("transformer_xl", **SMALL)
    same = eqx.tree_at(lambda m: (m.embedding, m.layers), plain, (memory.embedding, memory.layers))
    xs, starts = episodes(TIME)
    np.testing.assert_allclose(outputs(memory, xs, starts), outputs(same, xs, starts), atol=1e-6)


@pytest.mark.parametrize("bias", [-9.0, 0.0, 9.0])
def test_readings_and_their_cost_are_reported(bias: float) -> None:
    """The oracle's steps N and cost N + w_N; all steps where p is small, one where it is large."""
    memory = sample("universal", num_layers=1, max_steps=6)
    memory = eqx.tree_at(lambda m: m.halting.unit.bias, memory, jnp.full(1, bias))
    xs, starts = episodes(TIME)
    state = memory.init_state()
    _, ys, metrics = eqx.filter_jit(memory.unroll_with_metrics)(state, xs, starts)
    readings: list[int] = []
    np.testing.assert_allclose(
        ys, universal.run(memory, xs, starts, readings=readings), rtol=1e-4, atol=1e-4
    )
    assert set(metrics) == set(memory.metric_names)
    np.testing.assert_array_equal(metrics["ponder_steps"], readings)
    remainder = np.asarray(metrics["ponder_cost"] - metrics["ponder_steps"])
    assert np.all(remainder > 0) and np.all(remainder <= 1 + 1e-6)
    if bias:
        assert set(readings) == ({6} if bias < 0 else {1})


def test_the_cost_of_pondering_teaches_to_halt() -> None:
    """Graves (2016), Eq. 12: the gradient raises the probabilities before the last."""
    memory = sample("universal", num_layers=1, max_steps=6)
    xs, starts = episodes(TIME)

    def cost(memory: Any) -> jax.Array:
        _, _, metrics = memory.unroll_with_metrics(memory.init_state(), xs, starts)
        return jnp.mean(metrics["ponder_cost"])

    gradient = eqx.filter_jit(eqx.filter_grad(cost))(memory)
    assert float(gradient.halting.unit.bias[0]) < 0


@pytest.mark.parametrize("name", fast_only(["transformer_xl", "universal"], "transformer_xl"))
def test_current_gradients_reach_no_earlier_input(name: str) -> None:
    """The values are those of "full"; only the input just read gets a gradient."""
    xs, _ = episodes(TIME)
    starts = np.zeros(TIME, bool)
    memories: dict[str, Any] = {
        gradient: sample(name, **{**SMALL, "gradient": gradient})
        for gradient in ("full", "current")
    }
    full, current = memories.values()
    np.testing.assert_allclose(
        outputs(full, xs, starts), outputs(current, xs, starts), rtol=1e-5, atol=1e-5
    )

    def last(memory: Any, xs: jax.Array) -> jax.Array:
        return jnp.sum(memory.unroll(memory.init_state(), xs, starts)[1][-1] ** 2)

    reached = {
        gradient: np.abs(eqx.filter_jit(jax.grad(partial(last, memory)))(xs)).sum(axis=1) > 0
        for gradient, memory in memories.items()
    }
    np.testing.assert_array_equal(reached["current"], [False] * (TIME - 1) + [True])
    assert reached["full"][-6:].all()


@pytest.mark.slow
def test_reading_in_order_has_the_gradient_of_its_steps() -> None:
    """Recurrent gates under halting get it in another way than through the loop."""
    options = {"gate": "temporal_gru", "crossed_states": True, "gradient": "current"}
    memory = sample("integrated", num_layers=1, max_steps=2, window=2, **options)
    xs, _ = episodes(7)
    starts = np.arange(7) == 3
    weights = np.random.default_rng(1).standard_normal((7, memory.output_size))

    def one(run: Any, memory: Any, xs: jax.Array) -> jax.Array:
        state, ys = run(memory, memory.init_state(), xs, starts)
        carried = (jnp.sum(x) for x in jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)))
        return jnp.sum(ys * weights.astype(np.float32)) + sum(carried, jnp.zeros(()))

    def gradient(run: Any) -> Any:
        return eqx.filter_jit(eqx.filter_grad(lambda both: one(run, *both)))((memory, xs))

    at_once, by_steps = gradient(lambda memory, *data: memory.unroll(*data)), gradient(scan_steps)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), at_once, by_steps
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps must be .* got 0"),
        ({"threshold": 1.5}, "threshold must be between 0 and 1, got 1.5"),
        ({"blend": "sum"}, "blend 'sum'.*mean, running"),
        ({"unreached": "zeros"}, "unreached 'zeros'.*zero"),
        ({"crossed_states": True}, "crossed_states needs gate='temporal_gru'"),
        ({"embedding": False}, "input_size 5 and hidden_size 12"),
        ({"gate": "grus"}, "gate 'grus'.*gru"),
        ({"norm": "both"}, "norm 'both'"),
        ({"gradient": "none"}, "gradient 'none'"),
        ({"init": "uniforms"}, "init 'uniforms'.*uniform"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    """Each error names the value and the possible ones."""
    kind, own = variant("universal", {**SMALL, **options})
    with pytest.raises(UserError, match=message):
        make_memory(kind, input_size=INPUT_SIZE, key=jax.random.key(0), **own)
