"""Compiled kernels for CPUs, which XLA calls instead of slow loops.

They are optional: without a C++ compiler XLA computes the same mathematics. `docs/kernels.md` has
their speed. `build` compiles them, `call` calls them, and each recurrence has a module.
"""

import contextlib
import contextvars
import functools
import multiprocessing
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, get_args

import jax
import jax.numpy as jnp

from clew.errors import UserError, require_choice
from clew.memory.kernels.build import SWITCHED_OFF, source_hash
from clew.memory.kernels.call import TYPES, register
from clew.memory.parts.placement import placed

Backend = Literal["auto", "kernel", "xla"]
"""What computes a chunk: "kernel", compiled C++, or "xla".

"auto" is the kernel where JAX runs on a CPU that has it and all floats have one dtype, float32 or
float64; otherwise XLA. Both are the same function within rounding; only "xla" has forward-mode and
second derivatives."""

T = TypeVar("T")

PLACED = "within jax.shard_map they need check_vma=False, and mesh axes of type Auto"

BACKENDS = ("auto", "kernel", "xla")

Form = Literal["kernel", "xla", "chunkwise", "associative"]
"""What computes a chunk of ReLiT or AReLiT: two more forms, parallel in time.

"chunkwise" uses matrix products over several steps at a time, see `clew.memory.parts.chunkwise`;
"associative" is `clew.memory.parts.scans.linear_scan` over the states of all steps."""

RecurrenceBackend = Literal["auto", Form]
"""A `Form`, or "auto": the kernel where there is one, otherwise the parallel form on an accelerator
and "xla" on a CPU. All are the same function within rounding; all but "kernel" have forward-mode
and second derivatives."""

_ALLOWED = contextvars.ContextVar("clew_kernels_allowed", default=True)
_ASKED: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar(
    "clew_kernels_asked", default=None
)


def uses_kernel(backend: Backend, *arrays: Any) -> bool:
    """Whether a kernel should be used, on JAX's default platform.

    Args:
        arrays: trees of arrays; the kernel would read the float arrays among them.

    Raises:
        UserError: for "kernel" where there is none, with the reason.
    """
    require_choice("backend", backend, BACKENDS)
    if backend == "xla" or not _ALLOWED.get():
        return False
    missing = why_not()
    asked = _ASKED.get()
    if asked is not None:
        asked.append(missing)
    reason = missing or _wrong_types(arrays) or (PLACED if placed(arrays) else "")
    if reason and backend == "kernel":
        raise UserError(f"backend='kernel' is not possible: {reason}; backend='auto' does without")
    if missing and jax.default_backend() == "cpu":
        _warn(missing)
    return not reason


def choose_form(backend: RecurrenceBackend, *arrays: Any, parallel: Form = "chunkwise") -> Form:
    """What computes a chunk of ReLiT or AReLiT on JAX's default platform.

    Args:
        parallel: the form for accelerators.

    Raises:
        UserError: for "kernel" where there is none, with the reason.
    """
    require_choice("backend", backend, get_args(RecurrenceBackend))
    if backend == "chunkwise" or backend == "associative":
        return backend
    if uses_kernel(backend, *arrays):
        return "kernel"
    if backend == "auto" and _ALLOWED.get() and jax.default_backend() != "cpu":
        return parallel
    return "xla"


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Functions traced in this context use XLA alone, for readers of the traced program."""
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
    return register()


@functools.cache
def _warn(reason: str) -> None:
    """Warns once that there are no kernels; workers leave that to the process that started them."""
    if reason != SWITCHED_OFF and multiprocessing.parent_process() is None:
        shown = textwrap.shorten(reason, 300)
        warnings.warn(f"XLA is used instead of clew's kernels: {shown}", stacklevel=1)


def _wrong_types(arrays: Any) -> str:
    """Why there is no kernel for arrays of these types; empty if there is one."""
    types = {jnp.result_type(x) for x in jax.tree.leaves(arrays)}
    floats = sorted(str(x) for x in types if jnp.issubdtype(x, jnp.inexact))
    if not floats or (len(floats) == 1 and floats[0] in TYPES):
        return ""
    return f"the kernels need one dtype, {' or '.join(TYPES)}, got {', '.join(floats)}"


def provenance() -> str:
    """The kernels' hash, or why there are none, for a run's record; empty if nothing has asked."""
    if not register.cache_info().currsize:
        return ""
    return register() or source_hash()


def provenance_of(build: Callable[[], T]) -> tuple[T, str]:
    """Builds something, and returns it with its own `provenance`, not that of other builds.

    Args:
        build: builds a memory, or an agent with one; building asks for its kernels, if it has any.
    """
    asked: list[str] = []
    token = _ASKED.set(asked)
    try:
        made = build()
    finally:
        _ASKED.reset(token)
    return made, (asked[0] or source_hash()) if asked else ""
