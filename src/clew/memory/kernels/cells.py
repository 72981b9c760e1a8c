"""The kernels of the LSTM's and the GRU's recurrence over a chunk."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.memory.base import State
from clew.memory.kernels.call import call

CellKernel = Literal["lstm", "gru"]

_KEPT = {"lstm": 5, "gru": 4}  # `kept` in native/cells.h: numbers a unit and step
# Whether the gradients of the recurrent product are those of the input's product.
_SAME = {"lstm": True, "gru": False}


class CellInputs(NamedTuple):
    """What the recurrence of a chunk starts from."""

    weight: Float[Array, "size gates"]
    """U, of the recurrent product h U."""
    offset: Float[Array, " gates"]
    """What is added to it."""
    state: State
    """Arrays of [size]: c and h, or h alone."""
    projected: Float[Array, "time gates"]
    """The products of the inputs."""
    starts: Bool[Array, " time"]


class CellRun(NamedTuple):
    """What comes of a chunk."""

    outputs: Float[Array, "time size"]
    last: State
    kept: Any
    """What the backward pass needs besides."""


class CellGradients(NamedTuple):
    """What flows back."""

    projected: Float[Array, "time gates"]
    product: Float[Array, "time gates"]
    """Into h U + offset of every step."""
    state: State


def run_kernel(kernel: CellKernel, inputs: CellInputs) -> CellRun:
    """Forward; kept are the gates, and of the LSTM c.

    The recurrent weight is laid out once for the whole chunk, in the order in which a product of a
    few rows reads it.
    """
    weight, offset, state, projected, starts = inputs
    rows, kind = jax.tree.flatten(state)
    time, size, dtype = len(starts), rows[0].shape[-1], projected.dtype
    shapes = ((time, size), (len(rows), size), (time, _KEPT[kernel] * size))
    outputs, last, kept = call(
        *(f"{kernel}_forward", tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)),
        *(weight, offset, jnp.stack(rows), projected, starts),
        shared=True,
    )
    return CellRun(outputs, jax.tree.unflatten(kind, list(last)), kept)


def pull_kernel(
    kernel: CellKernel, inputs: CellInputs, run: CellRun, of_outputs: Array, of_last: State
) -> CellGradients:
    """Backward, from the gradients of the outputs and of the state after the chunk."""
    weight, offset, state, projected, starts = inputs
    rows, kind = jax.tree.flatten(state)
    (time, gates), dtype = projected.shape, projected.dtype
    shapes = ((time, gates), (0 if _SAME[kernel] else time, gates), (len(rows), len(rows[0])))
    of_projected, of_product, of_state = call(
        *(f"{kernel}_backward", tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)),
        *(weight, offset, jnp.stack(rows), projected, starts, run.outputs, run.kept),
        *(of_outputs, jnp.stack(jax.tree.leaves(of_last))),
        shared=True,
    )
    of_product = of_projected if _SAME[kernel] else of_product
    return CellGradients(of_projected, of_product, jax.tree.unflatten(kind, list(of_state)))
