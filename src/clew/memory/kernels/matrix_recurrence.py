"""The matrix recurrence over a chunk, through a kernel that recomputes its states.

The forward pass goes over time with four independent rows of the state at a time, in the
processor's L1 cache. The backward pass recomputes the states from every 16th one, which is kept for
one head at a time; nothing of size time x state is ever held.
"""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Bool, Float

from clew.memory.kernels.call import call, require_shapes, shapes_of


class MatrixArrays(NamedTuple):
    """The inputs of a chunk's recurrence, see `clew.memory.parts.matrix_recurrence`.

    Without a delta rule there is no rate, and where nothing is erased there is no `erased` and no
    `share`: their last axis is then empty.
    """

    query: Float[Array, "time heads key"]
    key: Float[Array, "time heads key"]
    value: Float[Array, "time heads value"]
    keep: Float[Array, "time heads decays"]
    """a, one for a head or one for every key"""
    rate: Float[Array, "time heads one"]
    """b"""
    erased: Float[Array, "time heads _"]
    """e"""
    share: Float[Array, "time heads _"]
    """s"""
    starts: Bool[Array, " time"]
    state: Float[Array, "heads value key"]


Chunk = tuple[Float[Array, "time heads value"], Float[Array, "heads value key"]]
"""What the steps read, and the state after them."""


@jax.custom_vjp
def matrix_recurrence(inputs: MatrixArrays) -> Chunk:
    """y of every step, and the state after them."""
    require_shapes(inputs)
    return tuple(call("matrix_forward", shapes_of(inputs.value, inputs.state), *inputs))


def _forward(inputs: MatrixArrays) -> tuple[Chunk, MatrixArrays]:
    return matrix_recurrence(inputs), inputs


def _backward(inputs: MatrixArrays, cotangents: Chunk) -> tuple[Any]:
    *floats, _, state = inputs
    gradients = call("matrix_backward", shapes_of(*floats, state), *inputs, *cotangents)
    return (MatrixArrays._make([*gradients[:-1], None, gradients[-1]]),)


matrix_recurrence.defvjp(_forward, _backward)
