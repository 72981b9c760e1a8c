"""XLand-MiniGrid's environments behind gymnax's interface: "xminigrid:MiniGrid-MemoryS8"."""

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Array

from clew.bridges.jax_packages import Factory, import_package, keywords_of
from clew.errors import unknown_name

HIDDEN = ("render_mode",)
"""Fields of the params that do not change the task."""


class XMiniGrid:
    """An environment of XLand-MiniGrid: the agent has to reach a goal in a grid of tiles.

    An observation is the agent's view of the grid, `view_size` squares each way: for each tile its
    kind and then its colour, row by row. The step that reaches the goal terminates, the last of
    `max_steps` truncates. The reward is 1 - 0.9 t / max_steps at the goal, else 0.

    `settings` are its params, which are compile-time constants.

    Source: xminigrid 0.9.3 (Nikulin et al., 2024), `environment.py`.
    """

    default_params = ()

    def __init__(self, env: Any, settings: Any):
        self.env, self.settings = env, settings
        core = import_package("xminigrid", "xminigrid.core.constants")
        self.kinds = (core.NUM_TILES, core.NUM_COLORS)

    def observation_space(self, params: Any) -> spaces.MultiDiscrete:
        """Kind and colour of every tile in sight."""
        height, width, _ = self.env.observation_shape(self.settings)
        return spaces.MultiDiscrete(np.tile(self.kinds, height * width))

    def action_space(self, params: Any) -> spaces.Discrete:
        """Forward, right, left, pick up, put down, toggle."""
        return spaces.Discrete(self.env.num_actions(self.settings))

    def reset(self, key: Array, params: Any) -> tuple[Array, Any]:
        """Opens an episode."""
        opened = self.env.reset(self.settings, key)
        return opened.observation, opened

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> tuple[Any, ...]:
        """One step; its random numbers follow from the state."""
        after = self.env.step(self.settings, state, action)
        terminated = after.discount == 0
        return after.observation, after, after.reward, terminated, after.last() & ~terminated, {}

    def render_state(self, state: Any) -> np.ndarray:
        """A picture of the grid, with the agent's view."""
        return np.asarray(self.env.render(self.settings, state))


def factory(place: str) -> Factory:
    """A function that builds an environment; its options are fields of the environment's params.

    Raises:
        UserError: an unknown id, or the package is missing or of another version.
    """
    package = import_package("xminigrid")
    known = package.registered_environments()
    if place not in known:
        raise unknown_name("xminigrid environment", place, known)
    _, settings = package.make(place)
    names = [f.name for f in dataclasses.fields(settings) if f.name not in HIDDEN]
    defaults = {name: getattr(settings, name) for name in names}
    return lambda **options: XMiniGrid(*package.make(place, **options)), keywords_of(defaults)
