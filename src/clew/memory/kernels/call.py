"""Calls of the kernels from JAX."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array

from clew.errors import UserError
from clew.memory.kernels.build import NotBuilt, load_kernels, source_hash

_KERNELS = (
    *("relit_forward", "relit_backward", "arelit_forward", "arelit_backward"),
    *("matrix_forward", "matrix_backward"),
    *("window_forward", "window_backward", "window_step"),
    *("lstm_forward", "lstm_backward", "gru_forward", "gru_backward"),
)
TYPES = ("float32", "float64")
"""The dtypes that a call may have; all its floats have the same one."""
_NAMES = tuple(f"clew_{name}_{kind}" for name in _KERNELS for kind in TYPES)


@functools.cache
def register() -> str:
    """Registers the kernels with JAX, once per process; returns the reason if it fails, else ""."""
    try:
        library = load_kernels()
        capsules = {name: jax.ffi.pycapsule(getattr(library, name)) for name in _NAMES}
    except NotBuilt as reason:
        return str(reason)
    except AttributeError as error:
        return f"the compiled library lacks some of the kernels: {error}"
    for name, capsule in capsules.items():
        jax.ffi.register_ffi_target(_target(name), capsule, platform="cpu")
    return ""


def call(
    name: str,
    results: Any,
    *arguments: Any,
    shared: bool = False,
    in_place: dict[int, int] | None = None,
    **attributes: Any,
) -> Any:
    """Calls a kernel; `results` are its outputs' shapes and dtypes, leading axes are batched.

    Args:
        name: the kernel's name, without "clew_" and its dtype.
        results: as `jax.ffi.ffi_call` takes them.
        arguments: arrays; all floats have the dtype of the first one.
        shared: whether the kernel itself shares an unbatched argument across the batch; otherwise
            such an argument is repeated.
        in_place: maps arguments to the results that reuse their memory, by number; XLA copies an
            argument first where something else reads it later.
        attributes: floats, and tuples of floats.
    """
    constants = {key: np.asarray(value, np.float64) for key, value in attributes.items()}
    constants = {key: value if value.ndim else value[()] for key, value in constants.items()}
    target = _target(f"clew_{name}_{arguments[0].dtype.name}")
    method = "expand_dims" if shared else "broadcast_all"
    function = jax.ffi.ffi_call(target, results, vmap_method=method, input_output_aliases=in_place)
    given = [
        alongside(x, *arguments) if i in (in_place or ()) else x for i, x in enumerate(arguments)
    ]
    return function(*given, **constants)


def shapes_of(*arrays: Array) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Results with the shapes and dtypes of these arrays."""
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)


def require_shapes(inputs: Any) -> None:
    """Refuses arrays that do not fit together; a kernel would read and write beyond their ends.

    Args:
        inputs: a named tuple of arrays whose annotations name their axes.

    Raises:
        UserError: naming the array, its shape and its axes.
    """
    sizes: dict[str, int] = {}
    for name, kind in type(inputs).__annotations__.items():
        axes, shape = kind.dim_str.split(), inputs._asdict()[name].shape
        named = [(axis, size) for axis, size in zip(axes, shape, strict=False) if axis != "_"]
        expected = [int(a) if a.isdigit() else sizes.setdefault(a, size) for a, size in named]
        if len(axes) != len(shape) or expected != [size for _, size in named]:
            raise UserError(
                f"{name} has shape {list(shape)} beside arrays of {sizes}; expected its axes to be "
                f"[{', '.join(axes)}]"
            )


_alongside_p = Primitive("alongside")


def alongside(x: Array, *others: Array) -> Array:
    """x, repeated along every batch axis of the others, since a result has all of them."""
    return _alongside_p.bind(x, *others)


def _batch_alongside(
    arguments: tuple[Array, ...], axes: tuple[int | None, ...]
) -> tuple[Array, int]:
    fronted = [
        x if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(arguments, axes, strict=True)
    ]
    size = next(len(x) for x, axis in zip(fronted, axes, strict=True) if axis is not None)
    if axes[0] is None:
        fronted[0] = jnp.broadcast_to(fronted[0], (size, *fronted[0].shape))
    return alongside(*fronted), 0


_alongside_p.def_impl(lambda x, *_: x)
_alongside_p.def_abstract_eval(lambda x, *_: x)
mlir.register_lowering(_alongside_p, lambda _, x, *__: [x])
batching.primitive_batchers[_alongside_p] = _batch_alongside


@functools.cache
def _target(name: str) -> str:
    # JAX keeps compiled programs, which name what they call; other sources are other kernels.
    return f"{name}_{source_hash()}"
