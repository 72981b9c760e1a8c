"""Spaces of observations and actions: their parts by name, and actions as numbers."""

import numpy as np
from gymnasium import spaces

from clew.errors import UserError

BARE = "observation"
"""Name of an observation that has none, in a dict."""


def named_spaces(space: spaces.Space) -> dict[str, spaces.Space]:
    """A Dict's spaces by name; any other space under the name "observation"."""
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {BARE: space}


def float_boxes(space: spaces.Space) -> dict[str, spaces.Box]:
    """Those of the named spaces that are float32 Boxes."""
    return {
        name: box
        for name, box in named_spaces(space).items()
        if isinstance(box, spaces.Box) and box.dtype == np.float32
    }


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
