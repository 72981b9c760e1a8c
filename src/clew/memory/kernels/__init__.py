"""Compiled kernels for processors: what XLA calls in the place of slow loops.

They are an option and no need: a machine without a C++ compiler runs the same mathematics through
XLA. `docs/kernels.md` tells what they bring.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator
from typing import Any, Literal

import jax
import numpy as np

from clew.errors import UserError, require_choice
from clew.memory.kernels.build import NotBuilt, load_kernels, source_hash

Backend = Literal["auto", "kernel", "xla"]
"""What computes a chunk: "kernel", compiled C++, or "xla".

"auto" is the kernel where JAX runs on a processor that has it, else XLA. Both are the same function
within rounding; only "xla" has forward-mode and second derivatives."""

BACKENDS = ("auto", "kernel", "xla")

_KERNELS = (
    *("outer_forward", "outer_backward", "waves_forward", "waves_backward"),
    *("window_forward", "window_backward", "window_step"),
    *("lstm_forward", "lstm_backward", "gru_forward", "gru_backward"),
)
_NAMES = tuple(f"clew_{name}_{kind}" for name in _KERNELS for kind in ("float32", "float64"))

_ALLOWED = contextvars.ContextVar("clew_kernels_allowed", default=True)


def uses_kernel(backend: Backend) -> bool:
    """Whether a kernel is to be used, on JAX's default platform.

    Raises:
        UserError: for "kernel" where there is none, with the reason.
    """
    require_choice("backend", backend, BACKENDS)
    if backend == "xla" or not _ALLOWED.get():
        return False
    reason = why_not()
    if reason and backend == "kernel":
        raise UserError(f"backend='kernel' is not possible: {reason}; backend='auto' does without")
    return not reason


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """What is traced meanwhile goes through XLA alone, for those who read the traced program."""
    token = _ALLOWED.set(False)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def why_not() -> str:
    """Why there are no kernels on JAX's default platform; empty if there are."""
    platform = jax.default_backend()
    if platform != "cpu":
        return f"the kernels are for CPUs, and JAX runs on {platform}"
    return _register()


def provenance() -> str:
    """What this process has found, for the record of a run; empty if nothing has asked."""
    if not _register.cache_info().currsize:
        return ""
    return _register() or source_hash()


def call(name: str, results: Any, *arguments: Any, shared: bool = False, **attributes: Any) -> Any:
    """Calls a kernel; `results` are its outputs' shapes and types, leading axes are batched.

    Args:
        name: which one, without "clew_" and the type of its numbers.
        results: as `jax.ffi.ffi_call` takes them.
        arguments: arrays; the first one's type is that of all floating-point numbers.
        shared: whether the kernel itself lends an argument that is not batched to the whole
            batch; else such an argument is repeated.
        attributes: floats, and tuples of floats.
    """
    constants = {key: np.asarray(value, np.float64) for key, value in attributes.items()}
    constants = {key: value if value.ndim else value[()] for key, value in constants.items()}
    target = _target(f"clew_{name}_{arguments[0].dtype.name}")
    method = "expand_dims" if shared else "broadcast_all"
    function = jax.ffi.ffi_call(target, results, vmap_method=method)
    return function(*arguments, **constants)


@functools.cache
def _register() -> str:
    try:
        library = load_kernels()
    except NotBuilt as reason:
        return str(reason)
    for name in _NAMES:
        capsule = jax.ffi.pycapsule(getattr(library, name))
        jax.ffi.register_ffi_target(_target(name), capsule, platform="cpu")
    return ""


@functools.cache
def _target(name: str) -> str:
    # JAX keeps compiled programs, which name what they call; other sources are other kernels.
    return f"{name}_{source_hash()}"
