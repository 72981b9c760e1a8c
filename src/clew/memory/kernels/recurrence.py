"""A recurrence over a chunk whose forward and backward pass are a pair of kernels."""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from clew.memory.kernels import call


def read_chunk(name: str, constants: NamedTuple, inputs: Any) -> tuple[Array, Array, Array]:
    """What the heads attended to, and both arrays of the state after the chunk.

    Gradients pass into the products, the maps and the state, and into nothing else.

    Args:
        name: the kernels are "<name>_forward" and "<name>_backward".
        constants: the kernels' attributes.
        inputs: a named tuple with `products` [time, 5, heads, head] first, then `maps`
            [time, 3, heads, eta], and last the two arrays of the state.
    """
    return _read(name, constants, inputs)


def _run(name: str, constants: Any, inputs: Any) -> tuple[Array, Array, Array]:
    products, *states = inputs[0], *inputs[-2:]
    attended = jax.ShapeDtypeStruct((len(products), *products.shape[2:]), products.dtype)
    results = (attended, *_shapes(*states))
    return tuple(call(f"{name}_forward", results, *inputs, **constants._asdict()))


_read = jax.custom_vjp(_run, nondiff_argnums=(0, 1))


def _forward(name: str, constants: Any, inputs: Any) -> tuple[tuple[Array, Array, Array], Any]:
    return _run(name, constants, inputs), inputs


def _backward(name: str, constants: Any, inputs: Any, cotangents: Any) -> tuple[Any]:
    results = _shapes(*inputs[:2], *inputs[-2:])
    gradients = call(f"{name}_backward", results, *inputs, *cotangents, **constants._asdict())
    nothing = [None] * (len(inputs) - len(results))
    return (type(inputs)(*gradients[:2], *nothing, *gradients[2:]),)


_read.defvjp(_forward, _backward)


def _shapes(*arrays: Array) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
