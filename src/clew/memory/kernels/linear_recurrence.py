"""ReLiT's and AReLiT's recurrences over a chunk, through kernels that recompute their states.

The forward pass goes over time once, with the state in the processor's L1 cache: AReLiT's vectors,
or four independent rows of ReLiT's matrix at a time. The backward pass recomputes the states from
every 16th one, which is kept for one head at a time; nothing of size time x state is ever held.
"""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Bool, Float

from clew.memory.kernels.call import call, require_shapes, shapes_of


class ReLiTInputs(NamedTuple):
    """The inputs of ReLiT's recurrence over a chunk, for all heads."""

    products: Float[Array, "time 5 heads head"]
    """Key, query, value, beta and gamma, before their relu or sigmoid."""
    maps: Float[Array, "time 3 heads eta"]
    """The maps of key, query and gamma, likewise."""
    starts: Bool[Array, " time"]
    matrix: Float[Array, "heads head eta head"]
    normaliser: Float[Array, "heads eta head"]


class ReLiTConstants(NamedTuple):
    """See `clew.memory.relit.GatedLinearAttention`."""

    joint: bool
    epsilon: float


class AReLiTInputs(NamedTuple):
    """The inputs of AReLiT's recurrence over a chunk, for all heads."""

    products: Float[Array, "time 5 heads head"]
    """As in `ReLiTInputs`."""
    maps: Float[Array, "time 3 heads eta"]
    cosines: Float[Array, "time rows"]
    starts: Bool[Array, " time"]
    keys: Float[Array, "rows heads eta head"]
    """The state; the values' cosines are the last of `rows`."""
    values: Float[Array, "vectors heads head"]


class AReLiTConstants(NamedTuple):
    """Constants of the readout, see `clew.memory.arelit.ApproximateLinearAttention`."""

    weights: tuple[float, ...]
    scale: float
    epsilon: float


Chunk = tuple[Array, Array, Array]
"""What the heads attended to, and both arrays of the state after the chunk."""


def relit_recurrence(constants: ReLiTConstants, inputs: ReLiTInputs) -> Chunk:
    """`GatedLinearAttention` over a chunk, between its products."""
    return _read("relit", constants, inputs)


def arelit_recurrence(constants: AReLiTConstants, inputs: AReLiTInputs) -> Chunk:
    """`ApproximateLinearAttention`, likewise; no gradient passes into the cosines."""
    return _read("arelit", constants, inputs)


def _run(name: str, constants: Any, inputs: Any) -> Chunk:
    require_shapes(inputs)
    products, *states = inputs[0], *inputs[-2:]
    attended = jax.ShapeDtypeStruct((len(products), *products.shape[2:]), products.dtype)
    results = (attended, *shapes_of(*states))
    return tuple(call(f"{name}_forward", results, *inputs, **constants._asdict()))


_read = jax.custom_vjp(_run, nondiff_argnums=(0, 1))


def _forward(name: str, constants: Any, inputs: Any) -> tuple[Chunk, Any]:
    return _run(name, constants, inputs), inputs


def _backward(name: str, constants: Any, inputs: Any, cotangents: Any) -> tuple[Any]:
    """Gradients of products, maps and state: the first two inputs and the last two."""
    results = shapes_of(*inputs[:2], *inputs[-2:])
    gradients = call(f"{name}_backward", results, *inputs, *cotangents, **constants._asdict())
    nothing = [None] * (len(inputs) - len(results))
    return (type(inputs)(*gradients[:2], *nothing, *gradients[2:]),)


_read.defvjp(_forward, _backward)
