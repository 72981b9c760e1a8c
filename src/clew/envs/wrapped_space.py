"""The spaces of what an agent sees through the wrappers, and of its own actions as numbers."""

from typing import Any

import numpy as np
from gymnasium import spaces

from clew.bridges.gymnasium.spaces import Array
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError

BARE = "observation"
"""Name of an observation that has none, in a dict."""
ADDED = ("previous_action", "previous_reward")


def observed(
    space: spaces.Space, actions: spaces.Space, config: WrapperConfig
) -> spaces.Box | spaces.Dict | Any:
    """The space of what the agent sees through the wrappers.

    Raises:
        UserError: keep does not fit the observation, or a name is taken.
    """
    space = kept(space, config)
    if config.normalise_observations:
        clip, named = config.observation_clip, dict(named_spaces(space))
        for name, box in float_boxes(space).items():
            named[name] = spaces.Box(-clip, clip, box.shape, np.float32)
        space = spaces.Dict(named) if isinstance(space, spaces.Dict) else named[BARE]
    if not config.previous:
        return space
    named = dict(named_spaces(space))
    for name in ADDED:
        if name in named:
            raise UserError(f"previous adds {name!r}, which the environment observes already")
    limit = np.inf if config.reward_clip is None else config.reward_clip
    named[ADDED[0]] = encoded_actions(actions)
    named[ADDED[1]] = spaces.Box(-limit, limit, (1,), np.float32)
    return spaces.Dict(named)


def encoded_actions(space: spaces.Space) -> spaces.Box:
    """The space of `encode_actions`."""
    if isinstance(space, spaces.Discrete):
        return spaces.Box(0.0, 1.0, (int(space.n),), np.float32)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Box(0.0, 1.0, (int(space.nvec.sum()),), np.float32)
    return spaces.Box(-np.inf, np.inf, space.shape, np.float32)


def encode_actions(space: spaces.Space, actions: Array) -> Array:
    """Actions [B, ...] as float32 numbers: one-hot, joined for a MultiDiscrete; others as they are.

    So that no choice looks like none, which is all 0.
    """
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[actions]
    if isinstance(space, spaces.MultiDiscrete):
        columns = actions.reshape(len(actions), -1).T
        pairs = zip(space.nvec.ravel(), columns, strict=True)
        return np.concatenate([np.eye(n, dtype=np.float32)[c] for n, c in pairs], axis=1)
    return np.array(actions, np.float32)


def kept(space: spaces.Space, config: WrapperConfig) -> spaces.Space:
    """The space of the entries that `keep` leaves.

    Raises:
        UserError: no vector observation, or it has no such entry.
    """
    if config.keep is None:
        return space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise UserError(f"keep is for vector observations, the environment observes {space}")
    if max(config.keep) >= space.shape[0]:
        entries = space.shape[0] - 1
        raise UserError(f"keep is {config.keep}, the observation has entries 0 to {entries}")
    keep = list(config.keep)
    return spaces.Box(space.low[keep], space.high[keep], dtype=space.dtype.type)


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
