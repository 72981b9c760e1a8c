"""The first law, checked without running a memory: what its functions return."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.errors import UserError, shapes_of, tracing_hint
from clew.memory.base import AbstractMemory, State
from clew.memory.laws.report import LawRecorder

STORED = "refresh(expand(compact(state)))"
"""How a learner that replays restores a state that it stored."""


def check_interface(memory: AbstractMemory, state: State, dtype: Any, record: LawRecorder) -> bool:
    """Whether a memory's functions return what the interface promises.

    Dtypes count: a compiled loop cannot carry a state that changes its dtype, and without this
    check the error would come from within JAX.
    """
    record.add("interface", 0, "init_state", _changes(memory))
    for name, (length, call) in _calls(memory, state, dtype).items():
        # A mistake in a step is mostly a mistake in a chunk too; report it for the step first.
        if record.report.passed:
            wrong = next(iter(_wrong(memory, name, call, state, dtype)), "")
            record.add("interface", length, name, wrong)
    return record.report.passed


def _calls(
    memory: AbstractMemory, state: State, dtype: Any
) -> dict[str, tuple[int, Callable[[], tuple]]]:
    """Every function of the interface on zeros, after the number of observations it reads."""
    xs, starts = jnp.zeros((2, memory.input_size), dtype), jnp.zeros(2, bool)
    return {
        "step": (1, lambda: memory.step(state, xs[0], starts[0])),
        "unroll": (2, lambda: memory.unroll(state, xs, starts)),
        "unroll_with_metrics": (2, lambda: memory.unroll_with_metrics(state, xs, starts)),
        "refresh": (0, lambda: (memory.refresh(state),)),
        STORED: (0, lambda: (memory.refresh(memory.expand(memory.compact(state))),)),
    }


def _wrong(
    memory: AbstractMemory, name: str, call: Callable[[], tuple], state: State, dtype: Any
) -> Iterator[str]:
    """Describes what is wrong with the values that a function returns."""
    try:
        returned = eqx.filter_eval_shape(call)
    except Exception as error:
        says = "".join(f": {line}" for line in str(error).strip().splitlines()[:1])
        yield f"{name} raises {type(error).__name__}{says}{tracing_hint(error)}"
        return
    states = dict.fromkeys(("refresh", STORED), ("state",))
    parts = states | {"unroll_with_metrics": ("state", "output", "metrics")}
    expected = parts.get(name, ("state", "output"))
    if not isinstance(returned, tuple) or len(returned) != len(expected):
        yield f"{name} returns {shapes_of(returned)}, not a tuple of {' and '.join(expected)},"
        return
    after, *outputs = returned
    if shapes_of(after) != shapes_of(state):
        yield f"the state becomes {shapes_of(after)}, not {shapes_of(state)} as it began,"
    lead = () if name == "step" else (2,)
    if outputs:
        yield from _unlike("the output", outputs[0], (*lead, memory.output_size), dtype)
    if len(outputs) == 2:
        names = memory.metric_names
        if not isinstance(outputs[1], dict):
            yield f"the metrics are {type(outputs[1]).__name__}, not a dict,"
            return
        if set(outputs[1]) != set(names):
            yield f"the metrics are {sorted(outputs[1])}, not {sorted(names)} as metric_names says,"
        for metric, values in outputs[1].items():
            yield from _unlike(f"the metric {metric}", values, lead, None)


def has_own_metrics(memory: AbstractMemory) -> bool:
    """Whether it defines its own `unroll_with_metrics`, beside `unroll`."""
    return type(memory).unroll_with_metrics is not AbstractMemory.unroll_with_metrics


def require_interface(memory: AbstractMemory) -> None:
    """Refuses a memory whose `step` or `unroll` breaks the interface, before anything is compiled.

    Only shapes are computed; `memory` may itself consist of shapes.

    Raises:
        UserError: saying what is wrong.
    """
    wrong: list[str] = []
    chunk = "unroll_with_metrics" if has_own_metrics(memory) else "unroll"

    def look(memory: AbstractMemory) -> None:
        state = memory.init_state()
        calls = _calls(memory, state, jnp.float32)
        for name in ("step", chunk):
            wrong.extend(_wrong(memory, name, calls[name][1], state, jnp.float32))

    eqx.filter_eval_shape(look, memory)
    if wrong:
        raise UserError(
            f"{type(memory).__name__} cannot be trained: {wrong[0].rstrip(',')}; clew check "
            "lists everything that is wrong with it"
        )


def _unlike(what: str, array: Any, shape: tuple[int, ...], dtype: Any) -> Iterator[str]:
    if array.shape != shape:
        yield f"{what} has shape {list(array.shape)}, not {list(shape)},"
    if dtype is not None and array.dtype != dtype:
        yield f"{what} has type {array.dtype.name}, not {np.dtype(dtype).name} as the observations,"
    if not jnp.issubdtype(array.dtype, jnp.floating):
        yield f"{what} has type {array.dtype.name}, which is not a float type,"


def _changes(memory: AbstractMemory) -> str:
    """Describes what is wrong with the initial state."""
    first, again = (jax.tree.leaves(memory.init_state()) for _ in range(2))
    if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, again, strict=True)):
        return ""
    return "the initial state is different every time,"
