"""MiniGrid's MemoryS7 with one-hot cells: pip install minigrid, then from this folder

    clew train --env minigrid_memory:make --memory lstm --steps 1000000

In the original, a cell is three numbers such as 5 for a key and 6 for a ball, which are hard for a
network to distinguish. results/gymnasium-tasks has the measurements and their settings.
"""

from typing import Any

import gymnasium
from minigrid.wrappers import OneHotPartialObsWrapper  # pyright: ignore[reportMissingImports]


def make(name: str = "MemoryS7") -> gymnasium.Env[Any, Any]:
    """MiniGrid's task of that name, without its mission, whose text is always the same."""
    env = OneHotPartialObsWrapper(gymnasium.make(f"minigrid:MiniGrid-{name}-v0"))
    return gymnasium.wrappers.FilterObservation(env, ["image", "direction"])
