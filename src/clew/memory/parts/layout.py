"""The layout of a memory: parameters and state by name, axes and shape."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_type_hints

import equinox as eqx
import jax
from jaxtyping import AbstractArray

from clew.memory.base import AbstractMemory


class Leaf(NamedTuple):
    """One array."""

    path: str
    """Its attribute in the memory; the leaf of a checkpoint has the same path."""
    axes: str
    """The names of its axes as the class declares them; empty if it does not."""
    shape: tuple[int, ...]


def parameter_layout(memory: AbstractMemory) -> list[Leaf]:
    """The trained arrays of a memory in the order of their attributes.

    Weights are [in, out], y = x W + b: the transpose of PyTorch's. Gates lie side by side along the
    last axis, in the order of the class's equation.

    Args:
        memory: with arrays, or with shapes instead of arrays.
    """
    return list(_leaves(memory, "", None))


def state_layout(memory: AbstractMemory) -> list[Leaf]:
    """The arrays that a memory carries from one observation to the next."""
    state = jax.eval_shape(memory.init_state)
    found = jax.tree_util.tree_leaves_with_path(state)
    return [Leaf(jax.tree_util.keystr(path), "", leaf.shape) for path, leaf in found]


def _leaves(node: Any, path: str, hint: Any) -> Iterator[Leaf]:
    if isinstance(node, eqx.Module):
        hints = get_type_hints(type(node))
        for field in dataclasses.fields(node):
            if not field.metadata.get("static", False):
                yield from _leaves(
                    getattr(node, field.name), f"{path}.{field.name}", hints[field.name]
                )
    elif isinstance(node, tuple | list):
        for index, inner in enumerate(node):
            yield from _leaves(inner, f"{path}[{index}]", hint)
    elif isinstance(node, jax.ShapeDtypeStruct) or eqx.is_array(node):
        yield Leaf(path.removeprefix("."), _axes(hint), node.shape)


def _axes(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return hint.dim_str.strip()
    return next(filter(None, map(_axes, get_args(hint))), "")
