"""Spaces of observations and actions: their parts by name, action masks, and actions as numbers."""

from typing import Any

import numpy as np
from gymnasium import spaces

from clew.errors import UserError
from clew.names import BARE, MASK

NOTHING_ALLOWED = "an action mask that allows no action"
"""What error messages call a mask of which no action can be taken."""
PREVIOUS_ACTION, PREVIOUS_REWARD = "previous_action", "previous_reward"
"""Names of what an agent may see of its previous step."""
PREVIOUS_ENDED = "previous_ended"
"""Name of what trials add to it."""


class ActionMask(spaces.Box):
    """Which actions are allowed, booleans [n], as an entry of a Dict observation.

    A Discrete has one for every action, a MultiDiscrete those of all its choices, one after the
    other. The policy gives what is not allowed the probability 0.

    Args:
        actions: the space of actions.
        shown: whether the agent's encoder reads the mask like any other entry.

    Raises:
        UserError: for actions that are no choices.
    """

    def __init__(self, actions: spaces.Space, shown: bool = False):
        size, dtype = sum(choice_sizes(actions)), np.bool_
        super().__init__(0, 1, (size,), dtype)  # pyright: ignore[reportArgumentType]
        self.shown = shown

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """A mask that allows everything: at random it might allow nothing."""
        return np.ones(self.shape, np.bool_)


def choice_sizes(actions: spaces.Space) -> tuple[int, ...]:
    """How many actions each choice has, of which a Discrete is one and a MultiDiscrete several.

    Raises:
        UserError: for actions that are no choices.
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
    """The space of `join_mask`.

    Raises:
        UserError: the name is taken.
    """
    named = named_spaces(space)
    if MASK in named:
        raise UserError(f"the observation has an entry {MASK!r} already, beside the action mask")
    return spaces.Dict({**named, MASK: mask})


def without_mask(space: spaces.Space) -> tuple[spaces.Space, ActionMask | None]:
    """The space of `split_mask`, and that of the mask; None where there is none."""
    mask = named_spaces(space).get(MASK)
    if not isinstance(mask, ActionMask):
        return space, None
    return space_without(space, MASK), mask


def join_mask(observation: Any, mask: Any) -> dict[str, Any]:
    """An observation with its action mask, as a dict."""
    named = observation if isinstance(observation, dict) else {BARE: observation}
    return {**named, MASK: mask}


def split_mask(observation: dict[str, Any]) -> tuple[Any, Any]:
    """The observation and the mask that `join_mask` was given."""
    return take_entry(observation, MASK)


def take_entry(observation: Any, name: str) -> tuple[Any, Any]:
    """What a dict has beside the entry of that name, as `bare` gives it, and the entry."""
    rest = {key: value for key, value in observation.items() if key != name}
    return bare(rest), observation[name]


def bare(named: dict[str, Any]) -> Any:
    """What is named "observation" if that is all there is, else the dict."""
    return named[BARE] if list(named) == [BARE] else named


def space_without(space: spaces.Space, name: str) -> spaces.Space:
    """The space of what `take_entry` leaves of observations of a Dict."""
    rest, _ = take_entry(named_spaces(space), name)
    return spaces.Dict(rest) if isinstance(rest, dict) else rest


def named_spaces(space: spaces.Space) -> dict[str, spaces.Space]:
    """A Dict's spaces by name; any other space under the name "observation"."""
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {BARE: space}


def parts_of(space: spaces.Space) -> list[spaces.Space]:
    """A Dict's spaces, those of Dicts within it too; any other space by itself."""
    if not isinstance(space, spaces.Dict):
        return [space]
    return [part for inner in space.values() for part in parts_of(inner)]


def is_float_box(space: spaces.Space) -> bool:
    """Whether a space is a float32 Box."""
    return isinstance(space, spaces.Box) and space.dtype == np.float32


def float_boxes(space: spaces.Space) -> dict[str, spaces.Box]:
    """Those of the named spaces that are float32 Boxes."""
    named: dict[str, Any] = named_spaces(space)
    return {name: box for name, box in named.items() if is_float_box(box)}


def kept(space: spaces.Space, keep: tuple[int, ...] | None) -> spaces.Space:
    """The space of some entries of a vector observation; None keeps the space as it is.

    Raises:
        UserError: no vector observation, or it has no such entry.
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
    """Actions [B, ...] as float32 numbers: one-hot, joined for a MultiDiscrete; others as they are.

    All zeros therefore stand for no action at all.
    """
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[actions]
    if isinstance(space, spaces.MultiDiscrete):
        columns = actions.reshape(len(actions), -1).T
        pairs = zip(space.nvec.ravel(), columns, strict=True)
        return np.concatenate([np.eye(n, dtype=np.float32)[c] for n, c in pairs], axis=1)
    return np.array(actions, np.float32)
