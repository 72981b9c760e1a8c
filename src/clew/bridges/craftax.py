"""Craftax's environments behind gymnax's interface: "craftax:Craftax-Symbolic-v1"."""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from clew.bridges.jax_packages import Factory, import_package
from clew.errors import unknown_name

NAMES = (
    *("Craftax-Symbolic-v1", "Craftax-Pixels-v1"),
    *("Craftax-Classic-Symbolic-v1", "Craftax-Classic-Pixels-v1"),
)
NEVER = 2**30
"""A time limit that no episode reaches."""


class Craftax:
    """An environment of Craftax: the player has to survive in a world and make progress in it.

    Its `done` does not distinguish the player's death from the time limit, `max_timesteps` of its
    params; here the former terminates and the latter truncates. The metric `achievements` is the
    number of the game's achievements in an episode. `env` must not reset itself.

    Source: craftax 1.6.1 (Matthews et al., 2024), `craftax/envs/` and `is_game_over`.
    """

    def __init__(self, env: Any):
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.reset, self.default_params = env.reset_env, env.default_params

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> tuple[Any, ...]:
        """One step, with both kinds of end."""
        observation, after, reward, ended, _ = self.env.step_env(key, state, action, params)
        endless = dataclasses.replace(params, max_timesteps=NEVER)
        terminated = self.env.is_terminal(after, endless)
        metrics = {"achievements": jnp.sum(after.achievements)}
        return observation, after, reward, terminated, ended & ~terminated, metrics


def factory(place: str) -> Factory:
    """A function that builds an environment; its options are fields of its params.

    Raises:
        UserError: an unknown id, or the package is missing or of another version.
    """
    if place not in NAMES:
        raise unknown_name("craftax environment", place, NAMES)
    package = import_package("craftax", "craftax.craftax_env")
    make = functools.partial(package.make_craftax_env_from_name, place, auto_reset=False)
    return lambda: Craftax(make()), {}
