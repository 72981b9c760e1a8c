"""Maps Gymnasium's spaces to the few forms of arrays that agents observe."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from clew.bridges.gymnasium.faults import AnswerError
from clew.bridges.gymnasium.trials import ENDED
from clew.errors import UserError, one_line
from clew.names import MASK, METRICS

OBSERVATIONS = "Box, Discrete, MultiBinary, MultiDiscrete, and Dict or Tuple of them"
ACTIONS = "Discrete, MultiDiscrete, MultiBinary, and Box of floating-point numbers"

NO_METRICS = (*METRICS, ENDED)

Array = np.ndarray
Arrays = Array | dict[str, Array]


@dataclass(frozen=True)
class Leaf:
    """One array of an observation, in the environment's form and in the agent's."""

    name: str
    """Names of its path, joined by dots; empty if the observation is not a Dict or Tuple."""
    path: tuple[str | int, ...]
    """Its path: keys of Dicts and places of Tuples."""
    space: spaces.Space
    """The agent's space: a Box (uint8 or float32), a Discrete or a MultiDiscrete."""
    offset: Array | None
    """Subtracted from every value: the first of the environment's numbers, if not 0."""
    raw_shape: tuple[int, ...]
    """The environment's shape; the agent's is flat for a MultiDiscrete."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value, as the agent sees it."""
        return self.space.shape or ()

    @property
    def dtype(self) -> np.dtype:
        """Its type: uint8, float32 or int32."""
        return np.dtype(np.int32) if is_categorical(self.space) else np.dtype(self.space.dtype)

    @property
    def field(self) -> str:
        """Its name in errors."""
        return f"observation {self.name}".rstrip()

    def pick(self, observation: Any) -> Array:
        """This array from a whole observation of the environment (or from a batch of them).

        Raises:
            AnswerError: it is missing or not an array.
        """
        for key in self.path:
            try:
                observation = observation[key]
            except (KeyError, IndexError, TypeError) as error:
                raise AnswerError(
                    f"an observation has no entry {key!r}{_entries(observation)}", self.field
                ) from error
        try:
            return np.asarray(observation)
        except ValueError as error:  # of rows of different lengths
            raise self.misfit(observation) from error

    def misfit(self, value: Any) -> AnswerError:
        """The error for a value that is not of the space."""
        if isinstance(value, np.ndarray) and value.dtype.kind in "?biufc":
            found = f"has shape {value.shape}"
        else:
            found = f"is {one_line(value.tolist() if isinstance(value, np.ndarray) else value)}"
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Mapping):
            found += "), which looks like what reset returns: its first part is the observation"
        return AnswerError(f"{self.field} {found}, its space is {self.space}", self.field)

    def adapt(self, value: Array) -> Array:
        """A value [...], or a batch of values [B, ...], as the agent sees it; always a copy."""
        lead, exact = value.ndim - len(self.raw_shape), exact_types(self.dtype)
        if value.dtype.kind not in "biufc" or value.shape[lead:] != self.raw_shape:
            raise self.misfit(value)
        if exact and value.dtype.char not in exact:
            require_exact(self, value)
        batch = value.shape[:lead]
        adapted = value.astype(self.dtype).reshape((*batch, *self.shape))
        return adapted if self.offset is None else adapted - self.offset


def _entries(observation: Any) -> str:
    if isinstance(observation, Mapping):
        return f"; it has {', '.join(map(repr, observation))}"
    return f": it is {one_line(observation)}"


def exact_types(dtype: np.dtype) -> str:
    """Kinds of types that a leaf's type represents exactly; empty if any is accepted.

    int32 counts as exact for every integer type, since categories are far below its limits.
    """
    return {"u": "?B", "i": "?bBhHiIlLqQ"}.get(dtype.kind, "")


def lost(value: Array, dtype: np.dtype) -> Array:
    """Which values a type cannot represent: fractions and NaN for integers, 256 for uint8."""
    with np.errstate(invalid="ignore"):
        return value.astype(dtype) != value


def require_exact(leaf: Leaf, value: Array) -> None:
    """Raises `AnswerError` for a value that the leaf's type would change."""
    wrong = lost(value, leaf.dtype)
    if wrong.any():
        value = value[wrong].flat[0]
        raise AnswerError(
            f"{leaf.field} has a value {value}, its space is {leaf.space}", leaf.field
        )


def answered(call: str, answer: Any, parts: Sequence[str]) -> tuple[Any, ...]:
    """The result of an environment's method, checked to be a tuple of these parts.

    Raises:
        AnswerError: it is not.
    """
    if isinstance(answer, tuple | list) and len(answer) == len(parts):
        return tuple(answer)
    found = f"{len(answer)} values" if isinstance(answer, tuple) else one_line(answer)
    raise AnswerError(f"{call} returned {found}, expected {len(parts)}: {', '.join(parts)}")


def number(name: str, value: Any) -> float:
    """A number, from any object that holds a single one.

    Raises:
        AnswerError: it is not a number.
    """
    try:
        return float(np.asarray(value).item())
    except (TypeError, ValueError) as error:
        raise AnswerError(f"{name} is {one_line(value)}, expected a number", name) from error


def flag(name: str, value: Any) -> bool:
    """The value of `terminated` or `truncated`, from any object that equals 0 or 1.

    Raises:
        AnswerError: it is neither.
    """
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
        raise AnswerError(f"{name} is {one_line(value)}, expected True or False", name)
    return bool(array.item())


def mask_of_info(info: Any, size: int, ended: bool) -> Array:
    """The action mask in an environment's `info`, uint8 [size].

    For a MultiDiscrete it may be a tuple of one mask for each choice, as in `MultiDiscrete.sample`.
    If the episode has ended and there is no mask, everything is allowed.

    Raises:
        AnswerError: it is missing, or has another shape or type.
    """
    mask = info.get(MASK)
    if mask is None:
        if ended:
            return np.ones(size, np.uint8)
        raise AnswerError(
            f"info has no {MASK!r}, expected {size} numbers, 1 for what is allowed", MASK
        )
    parts = mask if isinstance(mask, tuple | list) and np.ndim(mask[0]) else [mask]
    array = np.concatenate([np.ravel(part) for part in parts])
    shape = np.shape(mask) if parts[0] is mask else array.shape
    if shape != (size,) or array.dtype.kind not in "biuf":
        raise AnswerError(
            f"info[{MASK!r}] has shape {list(shape)} and type {array.dtype}, expected {size} "
            "numbers, 1 for what is allowed",
            MASK,
        )
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        raise AnswerError(
            f"info[{MASK!r}] has a value {array[wrong][0]}, expected zeros and ones", MASK
        )
    return array.astype(np.uint8)


def numbers_of_info(info: Any, wanted: Sequence[str] = ()) -> dict[str, float]:
    """The numbers in an environment's `info`; only the wanted ones, if there are any.

    Raises:
        AnswerError: a wanted number is missing.
    """
    items = info.items() if isinstance(info, Mapping) else ()
    found = {
        key: float(value)
        for key, value in items
        if isinstance(key, str) and key not in NO_METRICS and _is_number(value)
    }
    for name in wanted:
        if name not in found:
            has = ", ".join(map(repr, found)) or "none"
            raise AnswerError(
                f"the info of an episode's last step has no number {name!r}; it has {has}", "info"
            )
    return {name: found[name] for name in wanted or found}


def _is_number(value: Any) -> bool:
    number = isinstance(value, bool | int | float | np.generic) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    )
    return number and np.asarray(value).dtype.kind in "biuf" and bool(np.isfinite(value))


@dataclass(frozen=True)
class ObservationAdapter:
    """Converts observations of an environment to those of the agent."""

    leaves: tuple[Leaf, ...]
    space: spaces.Space
    """The agent's space: one of the leaves' spaces, or a flat Dict of them."""
    unread: tuple[str, ...] = ()
    """Names of the texts, which no agent sees."""
    nests: bool = False
    """Whether the agent takes nested Dicts unchanged, as in tasks in JAX."""

    @property
    def form(self) -> list[tuple[Any, ...]]:
        """All that an agent depends on: names, shapes, types, numbers of categories; no bounds."""
        return [
            (leaf.name, leaf.raw_shape, leaf.dtype, is_categorical(leaf.space) and str(leaf.space))
            for leaf in self.leaves
        ]

    def named(self, arrays: list[Array]) -> Arrays:
        """An array for each leaf, in the form of `space`."""
        if not isinstance(self.space, spaces.Dict):
            return arrays[0]
        return {leaf.name: array for leaf, array in zip(self.leaves, arrays, strict=True)}

    def arrays(self, observation: Arrays) -> list[Array]:
        """The array of each leaf."""
        if not isinstance(observation, dict):
            return [observation]
        return [observation[leaf.name] for leaf in self.leaves]

    def nested(self, seen: Any) -> Any:
        """The agent's input, from arrays by the names in `space` and those that wrappers add."""
        if not self.nests or not isinstance(seen, dict):
            return seen
        ways = {leaf.name: leaf.path for leaf in self.leaves}
        tree: dict[str | int, Any] = {}
        for name, array in seen.items():
            *outer, last = ways.get(name, (name,))
            inner = tree
            for key in outer:
                inner = inner.setdefault(key, {})
            inner[last] = array
        return tree

    def __call__(self, observation: Any) -> Arrays:
        """Converts one observation, or a batch with environments as first axis; makes copies."""
        return self.named([leaf.adapt(leaf.pick(observation)) for leaf in self.leaves])


def is_categorical(space: spaces.Space) -> bool:
    """Whether values are categories, not quantities: int32 arrays for the agent."""
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete)


def category_counts(space: spaces.Space) -> Array:
    """The number of values of a Discrete, or of each entry of a MultiDiscrete; uint32."""
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    return np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec, np.uint32)


def no_category(array: Array, counts: Array) -> Array:
    """Which numbers, counted from 0 as 32 bits, are not valid categories."""
    # As unsigned integers negative ones are large, so one comparison is enough.
    return array.view(np.uint32) >= counts


def is_text(space: spaces.Space) -> bool:
    """Whether a space is one of strings, Gymnasium's Text or another."""
    return space.dtype is not None and np.dtype(space.dtype).kind in "SU"


def adapt_observation(
    space: spaces.Space, name: str = "the environment", *, in_jax: bool = False
) -> ObservationAdapter:
    """The conversion of observations of a space to those of the agent.

    | space | agent sees |
    |---|---|
    | Box of uint8 | uint8, unchanged |
    | Box of any other numbers or booleans | float32 |
    | MultiBinary | float32, 0 or 1 |
    | Discrete, MultiDiscrete | int32 from 0 on, whatever the space's start; flat |
    | Dict, Tuple | one flat dict: names (for a Tuple places) joined by dots |
    | Text, or any space of strings (MiniGrid's mission), within a Dict or Tuple | nothing |

    Args:
        space: of an environment's observations.
        name: of the environment.
        in_jax: whether the agent's encoder is built for exactly this space, as for tasks in JAX:
            Discrete and MultiDiscrete are left unchanged, and `nested` gives the agent's input.

    Raises:
        UserError: for any other space, naming it and its place.
    """
    leaves, unread = [], []
    for path, entry in _entries_of(space):
        if path and is_text(entry):
            unread.append(_dotted(path))
        else:
            as_it_is = is_categorical(entry) and in_jax
            seen, offset = (entry, None) if as_it_is else _seen(entry, path, name)
            leaves.append(Leaf(_dotted(path), path, seen, offset, tuple(entry.shape or ())))
    if not leaves:
        raise UserError(f"{name} observes nothing usable; supported are {OBSERVATIONS}")
    if leaves[0].path:
        names = [leaf.name for leaf in leaves]
        if twice := [n for n in names if names.count(n) > 1]:
            raise UserError(
                f"{name} observes two entries that are both called {twice[0]!r} when names are "
                "joined by dots: rename one"
            )
        seen = spaces.Dict({leaf.name: leaf.space for leaf in leaves})
        return ObservationAdapter(tuple(leaves), seen, tuple(unread), in_jax)
    return ObservationAdapter(tuple(leaves), leaves[0].space)


def _entries_of(
    space: spaces.Space, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], spaces.Space]]:
    """The path of each space within Dicts and Tuples, and the space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, entry in inner:
            yield from _entries_of(entry, (*path, key))
    else:
        yield path, space


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(str(key) for key in path)


def _seen(
    space: spaces.Space, path: tuple[str | int, ...], name: str
) -> tuple[spaces.Space, Array | None]:
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n)), _offset(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec.ravel()), _offset(space.start)
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0.0, 1.0, space.shape, np.float32), None
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return space, None
    if isinstance(space, spaces.Box):
        return _float32(space), None
    place = f" at {_dotted(path)}" if path else ""
    raise UserError(f"{name} observes {space}{place}; supported are {OBSERVATIONS}")


def _float32(space: spaces.Box) -> spaces.Box:
    """The Box in float32; bounds beyond its range become infinite."""
    with np.errstate(over="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return spaces.Box(low, high, dtype=np.float32)


def _offset(start: Any) -> Array | None:
    offset = np.asarray(start, np.int32).ravel()
    if not offset.any():
        return None
    return offset if np.ndim(start) else offset[0]


@dataclass(frozen=True)
class ActionAdapter:
    """Converts a batch of the agent's actions to those of the environment."""

    space: spaces.Space
    """The agent's actions: Discrete or MultiDiscrete from 0, MultiBinary, or a Box of float32."""
    start: Array | None
    """Added to every action: the first of the environment's numbers, if not 0."""
    low: Array | None
    """Least action of a Box, in the environment's type."""
    high: Array | None
    """Greatest action of a Box, in the environment's type."""
    dtype: np.dtype
    """The environment's type."""

    def __call__(self, actions: Any) -> Array:
        """Converts actions [B, ...] to the environments' actions, with the same axes."""
        actions = np.asarray(actions)
        if self.low is not None:
            return np.clip(actions, self.low, self.high).astype(self.dtype, copy=False)
        actions = actions.astype(self.dtype)
        return actions if self.start is None else actions + self.start


def adapt_action(space: spaces.Space, name: str = "the environment") -> ActionAdapter:
    """The conversion of the agent's actions to those of an environment.

    Discrete and MultiDiscrete actions are counted from 0 and shifted to the space's start; actions
    of a Box are float32 and clipped to its bounds, if any; those of a MultiBinary are 0 and 1.

    Raises:
        UserError: for any other space, or a Box of integers.
    """
    dtype = np.dtype(space.dtype)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        start = np.asarray(space.start, dtype) if np.any(space.start) else None
        one = isinstance(space, spaces.Discrete)
        seen = spaces.Discrete(int(space.n)) if one else spaces.MultiDiscrete(space.nvec)
        return ActionAdapter(seen, start, None, None, dtype)
    if isinstance(space, spaces.MultiBinary):
        return ActionAdapter(space, None, None, None, dtype)
    if isinstance(space, spaces.Box) and dtype.kind == "f":
        return ActionAdapter(_float32(space), None, space.low, space.high, dtype)
    raise UserError(f"{name} has actions {space}; supported are {ACTIONS}")
