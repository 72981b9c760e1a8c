"""Spaces of observations and actions: their parts by name, action masks, and actions as numbers."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from clew.errors import UserError
from clew.names import BARE, MASK

NOTHING_ALLOWED = "an action mask that allows no action"
"""The name in error messages of a mask that allows no action."""
PREVIOUS_ACTION, PREVIOUS_REWARD = "previous_action", "previous_reward"
"""The entries in which an agent may see its previous step."""
PREVIOUS_ENDED = "previous_ended"
"""The entry that trials add."""
WHOLE = "whole"
"""The entry, or the group of entries, with an observation as it is before anything is hidden."""


class ActionMask(spaces.Box):
    """Which actions are allowed, booleans [n], as an entry of a Dict observation.

    There is one for every action of a Discrete, and those of all choices of a MultiDiscrete are
    concatenated. The policy gives actions that are not allowed the probability 0.

    Args:
        actions: the space of actions.
        shown: whether the agent's encoder reads the mask like any other entry.

    Raises:
        UserError: for actions that are not choices.
    """

    def __init__(self, actions: spaces.Space, shown: bool = False):
        size, dtype = sum(choice_sizes(actions)), np.bool_
        super().__init__(0, 1, (size,), dtype)  # pyright: ignore[reportArgumentType]
        self.shown = shown

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """A mask that allows everything: at random it might allow nothing."""
        return np.ones(self.shape, np.bool_)


def choice_sizes(actions: spaces.Space) -> tuple[int, ...]:
    """The number of actions of each choice; a Discrete is one choice, a MultiDiscrete several.

    Raises:
        UserError: for actions that are not choices.
    """
    if isinstance(actions, spaces.Discrete):
        return (int(actions.n),)
    if isinstance(actions, spaces.MultiDiscrete):
        return tuple(actions.nvec.ravel().tolist())
    raise UserError(f"action masks are for Discrete and MultiDiscrete actions, got {actions}")


def allows_some(mask: Any, sizes: tuple[int, ...]) -> Any:
    """Whether masks [..., n], of NumPy or JAX, allow at least one action of every choice: [...]."""
    ends = np.cumsum(sizes).tolist()
    parts = [mask[..., end - n : end].any(axis=-1) for end, n in zip(ends, sizes, strict=True)]
    found = parts[0]
    for part in parts[1:]:
        found = found & part
    return found


def with_mask(space: spaces.Space, mask: ActionMask) -> spaces.Dict:
    """The space of the result of `join_mask`.

    Raises:
        UserError: if the name is taken.
    """
    named = named_spaces(space)
    if MASK in named:
        raise UserError(f"the observation already has an entry {MASK!r}, beside the action mask")
    return spaces.Dict({**named, MASK: mask})


def without_mask(space: spaces.Space) -> tuple[spaces.Space, ActionMask | None]:
    """The spaces of the results of `split_mask`; None where there is no mask."""
    mask = named_spaces(space).get(MASK)
    if not isinstance(mask, ActionMask):
        return space, None
    return space_without(space, MASK), mask


def join_mask(observation: Any, mask: Any) -> dict[str, Any]:
    """An observation with its action mask, as a dict."""
    return {**named_entries(observation), MASK: mask}


def split_mask(observation: dict[str, Any]) -> tuple[Any, Any]:
    """The observation and the mask that `join_mask` was given."""
    return take_entry(observation, MASK)


def take_entry(observation: Any, name: str) -> tuple[Any, Any]:
    """A dict without the entry of that name, through `bare`, and that entry."""
    return without_entries(observation, (name,)), observation[name]


def without_entries(observation: Any, names: Collection[str]) -> Any:
    """A dict without the entries of these names, through `bare`; anything else as it is."""
    if not isinstance(observation, Mapping):
        return observation
    return bare({name: value for name, value in observation.items() if name not in names})


def named_entries(observation: Any) -> dict[str, Any]:
    """A dict as it is; any other observation under the name "observation"."""
    return observation if isinstance(observation, dict) else {BARE: observation}


def bare(named: dict[str, Any]) -> Any:
    """The entry "observation" if there is no other, otherwise the dict."""
    return named[BARE] if list(named) == [BARE] else named


def space_without(space: spaces.Space, *names: str) -> spaces.Space:
    """The space of a Dict's observations after `without_entries`."""
    rest = without_entries(named_spaces(space), names)
    return spaces.Dict(rest) if isinstance(rest, dict) else rest


def named_spaces(space: spaces.Space) -> dict[str, spaces.Space]:
    """A Dict's spaces by name; any other space under the name "observation"."""
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {BARE: space}


def entries_named(entries: Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    """The entries that have one of these names, or belong to a group of one: "state.position", as
    Gymnasium's nested Dicts are called here, belongs to "state"."""
    groups = tuple(f"{name}." for name in names)
    return tuple(entry for entry in entries if entry in names or entry.startswith(groups))


def whole_entries(observation: Any) -> dict[str, Any]:
    """The entries that show a whole observation: `WHOLE`, or "whole.NAME" for each of a dict's.

    Works for observations and for their spaces.
    """
    if not isinstance(observation, Mapping):
        return {WHOLE: observation}
    return {f"{WHOLE}.{name}": part for name, part in observation.items()}


def parts_of(space: spaces.Space) -> list[spaces.Space]:
    """A Dict's spaces, including those of nested Dicts; any other space by itself."""
    if not isinstance(space, spaces.Dict):
        return [space]
    return [part for inner in space.values() for part in parts_of(inner)]


def is_float_box(space: spaces.Space) -> bool:
    """Whether a space is a float32 Box."""
    return isinstance(space, spaces.Box) and space.dtype == np.float32


def float_boxes(space: spaces.Space) -> dict[str, spaces.Box]:
    """The float32 Boxes among the named spaces."""
    named: dict[str, Any] = named_spaces(space)
    return {name: box for name, box in named.items() if is_float_box(box)}


def kept(space: spaces.Space, keep: tuple[int, ...] | None) -> spaces.Space:
    """The space of some entries of a vector observation; None keeps the whole space.

    Raises:
        UserError: if it is not a vector observation, or has no such entry.
    """
    if keep is None:
        return space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise UserError(f"keep is for vector observations, the environment observes {space}")
    if max(keep) >= space.shape[0]:
        entries = space.shape[0] - 1
        raise UserError(f"keep is {keep}, the observation has entries 0 to {entries}")
    places = list(keep)
    return spaces.Box(space.low[places], space.high[places], dtype=space.dtype.type)


def encoded_actions(space: spaces.Space) -> spaces.Box:
    """The space of `encode_actions`."""
    if isinstance(space, spaces.Discrete):
        return spaces.Box(0.0, 1.0, (int(space.n),), np.float32)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Box(0.0, 1.0, (int(space.nvec.sum()),), np.float32)
    return spaces.Box(-np.inf, np.inf, space.shape, np.float32)


def encode_actions(space: spaces.Space, actions: np.ndarray) -> np.ndarray:
    """Actions [B, ...] as float32 numbers: one-hot, concatenated for a MultiDiscrete; else
    unchanged.

    All zeros therefore stand for no action.
    """
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[actions]
    if isinstance(space, spaces.MultiDiscrete):
        columns = actions.reshape(len(actions), -1).T
        pairs = zip(space.nvec.ravel(), columns, strict=True)
        return np.concatenate([np.eye(n, dtype=np.float32)[c] for n, c in pairs], axis=1)
    return np.array(actions, np.float32)
