"""The kernels of the LSTM's and the GRU's recurrence over a chunk."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from clew.errors import UserError
from clew.memory.base import State
from clew.memory.kernels.call import call

CellKernel = Literal["lstm", "gru"]

_GATES = {"lstm": 4, "gru": 3}
# Gates at the end whose recurrent product does not have the gradient of the input's.
_APART = {"lstm": 0, "gru": 1}


def gate_columns(kernel: CellKernel, weight: Float[Array, "size gates"]) -> tuple[slice, ...]:
    """The columns of each array in which a kernel expects the products of the inputs."""
    size, gates = weight.shape
    joint = gates - _APART[kernel] * size
    return (slice(joint), slice(joint, gates)) if joint < gates else (slice(gates),)


class CellInputs(NamedTuple):
    """The inputs of a chunk's recurrence."""

    weight: Float[Array, "size gates"]
    """U, of the recurrent product h U."""
    offset: Float[Array, " gates"]
    """What is added to it."""
    state: State
    """Arrays of [size]: c and h, or h alone."""
    projected: tuple[Float[Array, "time _"], ...]
    """The products of the inputs, by `gate_columns`; none once the gates are in their place."""
    starts: Bool[Array, " time"]


class CellRun(NamedTuple):
    """The results of a chunk."""

    outputs: Float[Array, "time size"]
    last: State
    kept: Any
    """What else the backward pass needs."""


class CellGradients(NamedTuple):
    """What flows back."""

    projected: tuple[Float[Array, "time _"], ...]
    product: tuple[Float[Array, "time _"], ...]
    """Into h U + offset of every step, by the same columns."""
    state: State


def run_kernel(kernel: CellKernel, inputs: CellInputs, bias: Float[Array, " gates"]) -> CellRun:
    """Forward; kept are the gates, in the memory of the products they were made of, and one row.

    `bias` is added to the products of the inputs here, which saves a pass over them. The row is c
    of the LSTM, and h U_n + c of the GRU. The recurrent weight is laid out once for the whole
    chunk, in the order in which a product of a few rows reads it.
    """
    weight, offset, state, projected, starts = inputs
    rows, kind = jax.tree.flatten(state)
    joint, apart = _pair(projected)
    time, size, dtype = len(starts), rows[0].shape[-1], joint.dtype
    wide, apart_wide = _GATES[kernel] * size, _APART[kernel] * size
    expected = [(size, wide), (wide,), (wide,), (time, wide - apart_wide), (time, apart_wide)]
    given = [x.shape for x in (weight, offset, bias, joint, apart)]
    if given != expected or any(row.shape != (size,) for row in rows):
        raise UserError(
            f"a chunk of {time} through cells of {size} needs a recurrent weight, its offset, a "
            f"bias and products of the input of shapes {expected}, got {given}"
        )
    shapes = ((time, size), (len(rows), size), joint.shape, apart.shape, (time, size))
    outputs, last, *kept = call(
        *(f"{kernel}_forward", tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)),
        *(weight, offset, jnp.stack(rows), joint, apart, starts, bias),
        shared=True,
        in_place={3: 2, 4: 3} if _APART[kernel] else {3: 2},
    )
    return CellRun(outputs, jax.tree.unflatten(kind, list(last)), tuple(kept))


def _pair(arrays: tuple[Float[Array, "time _"], ...]) -> tuple[Array, Array]:
    """Two arrays, of which the second may have no columns."""
    first = arrays[0]
    return first, arrays[1] if len(arrays) > 1 else jnp.zeros((len(first), 0), first.dtype)


def pull_kernel(
    kernel: CellKernel, inputs: CellInputs, run: CellRun, of_outputs: Array, of_last: State
) -> CellGradients:
    """Backward, from the gradients of the outputs and of the state after the chunk.

    Needs no products of the inputs. Their gradients take the place of the gates, and those of the
    recurrent products that differ the place of what else was kept.
    """
    weight, offset, state, _, starts = inputs
    (joint, apart, kept), (rows, kind) = run.kept, jax.tree.flatten(state)
    shapes = (joint.shape, apart.shape, apart.shape, (len(rows), len(rows[0])))
    of_joint, of_apart, of_inner, of_state = call(
        f"{kernel}_backward",
        tuple(jax.ShapeDtypeStruct(shape, joint.dtype) for shape in shapes),
        *(weight, offset, jnp.stack(rows), joint, apart, starts, run.outputs, kept),
        *(of_outputs, jnp.stack(jax.tree.leaves(of_last))),
        shared=True,
        in_place={3: 0, 4: 1, 7: 2} if _APART[kernel] else {3: 0},
    )
    of_state = jax.tree.unflatten(kind, list(of_state))
    if not _APART[kernel]:
        return CellGradients((of_joint,), (of_joint,), of_state)
    return CellGradients((of_joint, of_apart), (of_joint, of_inner), of_state)
