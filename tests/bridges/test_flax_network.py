"""The Flax module that docs/interface.md shows; with Flax, which `make test-jaxenvs` installs."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import clew

flax = pytest.importorskip("flax")
train_state = pytest.importorskip("flax.training.train_state")

PAGE = Path(__file__).parents[2] / "docs" / "interface.md"


@pytest.mark.usefixtures("ordinary_promotion")
def test_a_flax_network_learns_saves_and_equals_the_memory() -> None:
    """Its outputs are those of the memory, in TrainState, after a gradient step and in bytes."""
    block = PAGE.read_text().split("## In a Flax network")[1].split("``` { .python }\n")[1]
    names: dict[str, Any] = {}
    exec(compile(block.split("```")[0], PAGE, "exec"), names)
    network = names["ScannedMemory"](size=8)
    carry = network.initialize_carry(3, 4)
    inputs = (
        jax.random.normal(jax.random.key(0), (5, 3, 4)),
        jnp.zeros((5, 3), bool).at[2].set(True),
    )
    state = train_state.TrainState.create(
        apply_fn=network.apply,
        params=network.init(jax.random.key(1), carry, inputs),
        tx=optax.adam(1e-2),
    )

    def loss(params: Any) -> jax.Array:
        return jnp.mean(state.apply_fn(params, carry, inputs)[1] ** 2)

    trained = state.apply_gradients(grads=jax.grad(loss)(state.params))
    assert loss(trained.params) < loss(state.params)
    again = flax.serialization.from_bytes(state, flax.serialization.to_bytes(trained))
    assert loss(again.params) == loss(trained.params)

    memory = clew.make_memory("arelit", input_size=4, key=jax.random.key(2), hidden_size=8)
    arrays = trained.params["params"]["memory"]
    memory = jax.tree.unflatten(jax.tree.structure(memory), arrays)
    _, alone = memory.unroll(memory.init_state(), inputs[0][:, 1], inputs[1][:, 1])
    _, ys = trained.apply_fn(trained.params, carry, inputs)
    assert jnp.allclose(ys[:, 1], alone, atol=1e-5)
