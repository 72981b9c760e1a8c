"""Attention over a window through kernels that store no scores: for a chunk, and for one step."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from clew.memory.kernels.call import call, require_shapes, shapes_of
from clew.memory.parts.softmax import softmax


class WindowInputs(NamedTuple):
    """The inputs of a chunk's attention, for all heads."""

    queries: Float[Array, "time heads head"]
    """Without biases, and not scaled."""
    keys: Float[Array, "time heads head"]
    values: Float[Array, "time heads head"]
    old_keys: Float[Array, "heads slots head"]
    """The ring before the chunk; its newest slot is never seen, as the window reaches back
    slots - 1 steps."""
    old_values: Float[Array, "heads slots head"]
    position: Int[Array, ""]
    length: Int[Array, ""]
    counts: Int[Array, " time"]
    """How many steps each query sees, including its own."""
    distances: Float[Array, "heads far head"]
    """Projected, from 0; `far` is 0 without relative positions."""
    content_bias: Float[Array, "heads head"]
    distance_bias: Float[Array, "heads head"]


class RingInputs(NamedTuple):
    """The inputs of a single query's attention, for all heads."""

    query: Float[Array, "heads head"]
    keys: Float[Array, "heads slots head"]
    values: Float[Array, "heads slots head"]
    at: Int[Array, ""]
    """The newest slot."""
    length: Int[Array, ""]
    """How many slots are seen."""
    distances: Float[Array, "far heads head"]
    content_bias: Float[Array, "heads head"]
    distance_bias: Float[Array, "heads head"]


@jax.custom_vjp
def read_window(inputs: WindowInputs) -> Float[Array, "time heads head"]:
    """`WindowAttention` over a chunk, between its products.

    The forward pass takes 32 queries at a time with just the keys that any of them sees. The
    backward pass recomputes their weights; nothing of size time x keys is ever held.
    """
    require_shapes(inputs)
    queries = inputs.queries
    (result,) = shapes_of(queries)
    return call("window_forward", result, *inputs, shared=True)


def _forward(inputs: WindowInputs) -> tuple[Array, WindowInputs]:
    return read_window(inputs), inputs


def _backward(inputs: WindowInputs, cotangent: Array) -> tuple[WindowInputs]:
    floats = [n for n in WindowInputs._fields if n not in ("position", "length", "counts")]
    results = shapes_of(*(getattr(inputs, n) for n in floats))
    gradients = call("window_backward", results, *inputs, cotangent, shared=True)
    nothing = WindowInputs(*[None] * len(inputs))  # pyright: ignore[reportArgumentType]
    return (nothing._replace(**dict(zip(floats, gradients, strict=True))),)


read_window.defvjp(_forward, _backward)


@jax.custom_jvp
def read_ring(inputs: RingInputs) -> Float[Array, "heads head"]:
    """`WindowAttention` of one query over the ring that its input was written into.

    Its derivatives, which acting does not need, are those of `attend_ring`.
    """
    require_shapes(inputs)
    (result,) = shapes_of(inputs.query)
    return call("window_step", result, *inputs, shared=True)


@read_ring.defjvp
def _ring_tangent(primals: tuple[RingInputs], tangents: tuple[RingInputs]) -> tuple[Array, Array]:
    return jax.jvp(attend_ring, primals, tangents)


def attend_ring(
    inputs: RingInputs,
    own_key: Float[Array, "heads head"] | None = None,
    own_value: Float[Array, "heads head"] | None = None,
) -> Float[Array, "heads head"]:
    """The same through XLA, for all of `WindowAttention`.

    Args:
        inputs: as in `read_ring`.
        own_key: what is added to the newest slot's key in the ring.
        own_value: likewise for its value.
    """
    slots, scale = inputs.keys.shape[1], 1.0 / math.sqrt(inputs.query.shape[-1])
    distance = (inputs.at - jnp.arange(slots)) % slots
    content = (inputs.query + inputs.content_bias) * scale
    by_distance = (inputs.query + inputs.distance_bias) * scale
    scores = jnp.einsum("hm,hjm->hj", content, inputs.keys)
    if len(inputs.distances):
        scores += jnp.einsum("hm,dhm->hd", by_distance, inputs.distances)[:, distance]
    if own_key is not None:
        scores = scores.at[:, inputs.at].add(jnp.sum(content * own_key, axis=-1))
    visible = jnp.broadcast_to(distance < inputs.length, scores.shape)
    weights = softmax(jnp.where(visible, scores, -jnp.inf))
    attended = jnp.einsum("hj,hjm->hm", weights, inputs.values)
    if own_value is not None:
        attended += jnp.broadcast_to(weights[:, inputs.at, None], own_value.shape) * own_value
    return attended
