"""The interface of every memory, and the helpers that they share."""

import abc
import functools
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from clew.errors import UserError, one_line
from clew.memory.parts.maps import MemoryMap

State = PyTree[Array]
"""What a memory carries from one observation to the next: arrays without a batch or time axis."""

_ANY: State = {}
"""In place of a state that was not given."""
_VALUES: Any = (jax.Array, np.ndarray, np.generic, bool, int, float)


class AbstractMemory(eqx.Module):
    """A causal sequence model with explicit state and no batch axis.

    `step` is the definition, the recurrence of the paper; `unroll` is the same function over a
    chunk of time, as fast as the model allows. Callers batch with `vmap`:

        jax.vmap(memory.unroll, in_axes=(0, 1, 1), out_axes=(0, 1))

    maps states [batch, ...], inputs [time, batch, in] and starts [time, batch] to the final
    states and outputs [time, batch, out].

    `start` says that the observation opens an episode: the state becomes `init_state()` *before*
    the observation is read. It is selected, not multiplied, so that nothing of the old state leaks
    through, not even a NaN. Starts may fall anywhere in a chunk.

    A memory never stops a gradient; the learner does so, at the edge of a chunk.
    """

    input_size: eqx.AbstractVar[int]
    output_size: eqx.AbstractVar[int]
    shardable: ClassVar[bool] = True
    """Whether `unroll` can be differentiated within `jax.shard_map`, for training on several
    devices. False for a model with a loop that JAX cannot differentiate there."""

    @abc.abstractmethod
    def init_state(self) -> State:
        """The state before any observation; deterministic."""

    @abc.abstractmethod
    def step(
        self, state: State, x: Float[Array, " in"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " out"]]:
        """Reads one observation; used for acting."""

    @abc.abstractmethod
    def unroll(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"]]:
        """Reads a chunk of at least one observation; used for learning."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics of `unroll_with_metrics`; mostly none."""
        return ()

    def unroll_with_metrics(
        self, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time out"], dict[str, Float[Array, " time"]]]:
        """`unroll`, with metrics on how every observation was read.

        A learner logs the means, and adds "ponder_cost" to its loss if its config says so.
        """
        return *self.unroll(state, xs, starts), {}

    def maps(self, xs: Float[Array, "time in"]) -> dict[str, MemoryMap]:
        """How one episode is read, by name; mostly for `clew inspect`.

        Optional: attention weights, gates and decay factors, each as `MemoryMap` describes. Empty
        by default.

        Args:
            xs: an episode's observations; the state before it is `init_state()`.
        """
        return {}

    def refresh(self, state: State) -> State:
        """Rebuilds the parts of the state that were derived from the parameters.

        Call it after every change of the parameters. Only memories with a key/value cache hold
        such arrays; for the others this is the identity.
        """
        return state

    def compact(self, state: State) -> State:
        """The part of a state that replay must store in order to continue from it later.

        With unchanged parameters, `refresh(expand(compact(state)))` continues as `state` does. The
        default is the whole state; a memory leaves out what `refresh` rebuilds.
        """
        return state

    def expand(self, compacted: State) -> State:
        """A state for `refresh`, from the output of `compact`."""
        return compacted


def select(start: Bool[Array, ""], fresh: State, state: State) -> State:
    """`fresh` where an episode starts, else `state`; leaf by leaf and safe against NaN."""
    return jax.tree.map(lambda f, s: jnp.where(start, f, s), fresh, state)


def count_floats(tree: PyTree) -> int:
    """Counts the floats in a tree of arrays or of their shapes; a complex number counts as two."""
    kinds = jax.Array | np.ndarray | jax.ShapeDtypeStruct
    arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, kinds)]
    each = {1: jnp.floating, 2: jnp.complexfloating}
    return sum(
        times * math.prod(array.shape)
        for array in arrays
        for times, kind in each.items()
        if jnp.issubdtype(array.dtype, kind)
    )


def scan_steps(
    memory: AbstractMemory, state: State, xs: Float[Array, "time in"], starts: Bool[Array, " time"]
) -> tuple[State, Float[Array, "time out"]]:
    """Scans `step` over a chunk: `unroll` must equal it, and it is a valid `unroll` itself."""
    return jax.lax.scan(lambda s, inputs: memory.step(s, *inputs), state, (xs, starts))


def check_step_input(memory: AbstractMemory, x: Any, start: Any, state: State = _ANY) -> Array:
    """Refuses a wrong observation or start flag, naming both shapes.

    Returns:
        The observation in the dtype of the parameters, so that no state changes its dtype.

    Raises:
        UserError: if `x` is not a floating-point vector of `input_size` numbers, `start` is not one
            boolean, the state belongs to another memory or has a narrower dtype than the
            parameters, or the parameters have several dtypes.
    """
    check_state(memory, state)
    _check_array(memory, "x", x, (memory.input_size,), jnp.floating)
    _check_array(memory, "start", start, (), jnp.bool_)
    return _of_own_type(memory, state, x)


def check_unroll_input(memory: AbstractMemory, xs: Any, starts: Any, state: State = _ANY) -> Array:
    """Refuses wrong chunks of observations or start flags, naming both shapes.

    Returns:
        The observations in the dtype of the parameters, so that no state changes its dtype.

    Raises:
        UserError: if `xs` is not floating-point [time, input_size] with at least one time step,
            `starts` is not boolean [time] of the same length, the state belongs to another memory
            or has a narrower dtype than the parameters, or the parameters have several dtypes.
    """
    check_state(memory, state)
    time = jnp.shape(xs)[0] if jnp.ndim(xs) else 0
    if time == 0:
        expected = f"[time >= 1, {memory.input_size}]"
        raise UserError(
            f"{type(memory).__name__} expected xs of shape {expected}, got {list(jnp.shape(xs))}"
        )
    _check_array(memory, "xs", xs, (time, memory.input_size), jnp.floating)
    _check_array(memory, "starts", starts, (time,), jnp.bool_)
    return _of_own_type(memory, state, xs)


def check_episode(memory: AbstractMemory, xs: Any) -> Array:
    """Refuses wrong observations of an episode, as `check_unroll_input` does for a chunk."""
    length = len(xs) if isinstance(xs, jax.Array | np.ndarray) and xs.ndim else 0
    return check_unroll_input(memory, xs, np.zeros(length, bool))


def _of_own_type(memory: AbstractMemory, state: State, x: Any) -> Array:
    """`x` in the precision of the parameters, if they have one; see `check_step_input`."""
    parameters = jax.tree.leaves(eqx.filter(memory, eqx.is_inexact_array))
    types = {jnp.finfo(leaf.dtype).dtype for leaf in parameters}  # that of complex64 is float32
    if not types:
        return jnp.asarray(x)
    if len(types) > 1:
        several = " and ".join(sorted(kind.name for kind in types))
        raise UserError(
            f"{type(memory).__name__} has parameters of several types, {several}; expected one"
        )
    own = types.pop()
    for kind in {jnp.result_type(leaf) for leaf in jax.tree.leaves(state)}:
        if jnp.issubdtype(kind, jnp.inexact) and jnp.finfo(kind).bits < jnp.finfo(own).bits:
            raise UserError(
                f"{type(memory).__name__} has parameters of type {own.name}, but was given a state "
                f"of type {kind.name}; start from its own init_state()"
            )
    return jnp.asarray(x, own)


def check_state(memory: AbstractMemory, state: State) -> None:
    """Refuses the state of another memory or of a batch; only shapes and dtypes are computed.

    Raises:
        UserError: naming the shapes of both.
    """
    if state is _ANY:
        return
    leaves, structure = jax.tree.flatten(memory)
    try:
        own = _own_state(structure, tuple(map(_without_values, leaves)))
    except TypeError:  # a setting of the memory cannot be hashed
        own = jax.eval_shape(memory.init_state)
    shapes, found = _shapes(own), _shapes(state)
    expected = f"{type(memory).__name__} expected a state as its init_state() gives it"
    if found != shapes:
        raise UserError(
            f"{expected}, arrays of shapes {_listed(shapes)}, got {_listed(found)}; "
            + _hint_for_shapes(shapes, found)
        )
    if jax.tree.structure(state) != jax.tree.structure(own):
        raise UserError(
            f"{expected}; these arrays are nested differently, perhaps in lists instead of tuples: "
            "jax.tree.unflatten(jax.tree.structure(memory.init_state()), arrays) nests them"
        )
    for wanted, leaf in zip(jax.tree.leaves(own), jax.tree.leaves(state), strict=True):
        kind = jnp.result_type(leaf)
        if _kind(kind) is not _kind(wanted.dtype):
            raise UserError(f"{expected}, with {wanted.dtype.name}, got {kind.name} instead")


def _kind(dtype: Any) -> Any:
    kinds = jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating
    return next((kind for kind in kinds if jnp.issubdtype(dtype, kind)), None)


@functools.lru_cache(maxsize=256)
def _own_state(structure: Any, leaves: tuple[Any, ...]) -> State:
    """The shapes of a memory's own state; computing them takes as long as a step."""
    memory: AbstractMemory = jax.tree.unflatten(structure, leaves)
    return eqx.filter_eval_shape(lambda memory: memory.init_state(), memory)


def _without_values(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array | np.ndarray):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return leaf


def _shapes(state: State) -> list[tuple[int, ...] | str]:
    leaves = jax.tree.leaves(state)
    return [repr(leaf)[:20] if isinstance(leaf, str) else jnp.shape(leaf) for leaf in leaves]


def _hint_for_shapes(wanted: list[Any], found: list[Any]) -> str:
    """What to do about a state of wrong shapes: a batch axis adds one to each."""
    if wanted and [len(shape) for shape in found] == [len(shape) + 1 for shape in wanted]:
        return "memories have no batch axis: use jax.vmap"
    return "a state fits only a memory with the same options"


def _listed(shapes: list[tuple[int, ...] | str]) -> str:
    if not shapes:
        return "none"
    named = [shape if isinstance(shape, str) else str(list(shape)) for shape in shapes]
    return ", ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")


def _check_array(memory: AbstractMemory, name: str, value: Any, shape: tuple, kind: Any) -> None:
    who = type(memory).__name__
    if not isinstance(value, _VALUES):
        raise UserError(f"{who} expected {name} as an array, got {one_line(value)}")
    if jnp.shape(value) != shape:
        raise UserError(
            f"{who} expected {name} of shape {list(shape)}, got {list(jnp.shape(value))}; memories "
            "have no batch axis: use jax.vmap"
        )
    dtype = jnp.result_type(value)
    if not jnp.issubdtype(dtype, kind):
        raise UserError(f"{who} expected {name} of type {kind.__name__}, got {dtype.name}")
