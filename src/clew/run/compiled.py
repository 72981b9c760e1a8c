"""The whole training loop, acting and learning in turn, as one compiled program."""

import operator
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from clew.agents.devices import jit_over, place_on_devices
from clew.envs import ENVS
from clew.memory import MEMORIES
from clew.names import find, resolve
from clew.run.build import Parts
from clew.run.machine import require_room
from clew.run.updates import RunState, SeedState, run_template, state_layouts, update


class Program(Protocol):
    """Makes the updates of a run: a compiled loop, or one with environments on the host."""

    state: RunState | None
    """The state after the last complete update, also if a call raised; None before the first."""

    def __call__(self, state: RunState, count: Int[Array, ""]) -> RunState:
        """Makes `count` updates, or fewer if an update produces a number that is not finite.

        The buffers of the given state are donated.

        Raises:
            EnvironmentFault: an environment returned NaN, or environments and actors failed more
                often than the run's settings allow.
            RolloutStopped: the run is to end; `state` is that of the last complete update.
        """
        ...

    def measured(self) -> dict[str, Any]:
        """Measures since the last call of this method, for a row of metrics."""
        return {}

    def close(self) -> None:
        """Closes environments and ends processes, if there are any."""


class CompiledProgram(Program):
    """A loop of updates compiled as one program, for one or several devices."""

    def __init__(self, parts: Parts, compiled: Any):
        self.compiled = compiled
        self.state: RunState | None = None
        self._layouts = state_layouts(parts), parts.sharding.whole

    def __call__(self, state: RunState, count: Int[Array, ""]) -> RunState:
        placed = map(place_on_devices, (state, count), self._layouts)
        self.state = state = self.compiled(*placed)
        return state


_COMPILED: dict[Hashable, tuple[list[Any], Any]] = {}
"""Compiled programs, each with the user code that it was compiled from."""
_KEPT = 4
_COMPILING = threading.Lock()


def compile_program(parts: Parts) -> CompiledProgram:
    """Compiles the loop, or takes it from the cache of compiled loops.

    The number of updates is an argument of the program, so that one program serves all calls. A
    resumed run therefore equals an uninterrupted one bit for bit.
    """
    config, stream = parts.config, parts.task.require_stream()
    # A process that resumes or repeats a run already has the program.
    # Two tasks of one name outside the registry may differ, so their programs are not shared.
    task = ENVS.get(config.env, jax.tree.structure(stream))
    devices = config.devices, config.device_threads
    memory = find("memory", config.memory, MEMORIES)
    key = (config.digest(), devices, task, memory)
    # In a notebook a name may come to refer to other code.
    own = [resolve(name) for name, _ in config.own_parts]
    with _COMPILING:
        if key in _COMPILED and any(map(operator.is_not, own, _COMPILED[key][0])):
            del _COMPILED[key]
        if key not in _COMPILED:
            while len(_COMPILED) >= _KEPT:
                del _COMPILED[next(iter(_COMPILED))]
            one = partial(update, parts, stream)
            _COMPILED[key] = own, compile_loop(parts, parts.sharding.each_seed(one, (0, None)))
        return CompiledProgram(parts, _COMPILED[key][1])


def compile_loop(parts: Parts, one: Callable[[SeedState, Int[Array, ""]], SeedState]) -> Any:
    """Compiles `advance` for the run's devices.

    Raises:
        UserError: if the program needs more RAM than this machine has.
    """
    sharding, layouts = parts.sharding, state_layouts(parts)
    options: dict[str, Any] = {}
    if sharding.mesh is not None:
        options = {"in_shardings": (layouts, sharding.whole), "out_shardings": layouts}
    jitted = jit_over(sharding.mesh, partial(advance, one), donate_argnums=0, **options)
    lowered = jitted.lower(run_template(parts), jax.ShapeDtypeStruct((), jnp.int32))
    compiled = lowered.compile(compiler_options=sharding.compiler_options)
    require_room(parts.config, compiled)
    return compiled


def advance(
    one: Callable[[SeedState, Int[Array, ""]], SeedState], state: RunState, count: Int[Array, ""]
) -> RunState:
    """Makes `count` updates, or fewer if an update produces a number that is not finite.

    `one` updates all seeds, given their state and the number of updates before.
    """
    stop = state.update + count

    def more(state: RunState) -> Bool[Array, ""]:
        return (state.update < stop) & jnp.all(state.seed.finite)

    def body(state: RunState) -> RunState:
        return RunState(state.update + 1, one(state.seed, state.update))

    return jax.lax.while_loop(more, body, state)
