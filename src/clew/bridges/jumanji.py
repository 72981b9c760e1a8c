"""Jumanji's environments behind gymnax's interface: "jumanji:Snake-v1"."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool

from clew.bridges.jax_packages import Factory, import_package, keywords_of, plain_options
from clew.envs.spaces import MASK, space_without
from clew.errors import UserError, unknown_name

MOST = 10_000
"""Most combinations of choices that are masked together."""


class JumanjiState(NamedTuple):
    """The state of an episode."""

    inner: Any
    """Jumanji's own state."""
    mask: Bool[Array, " actions"] | None
    """The allowed actions."""


class Jumanji:
    """An environment of Jumanji: a puzzle, game or planning problem, with an action mask.

    An observation is the environment's own without its mask, which becomes the task's
    `action_mask`. If several choices are masked together, such as row and column of a board, an
    action is one choice among all pairs. If nothing is allowed, everything is. A last step with a
    discount of 0 terminates, any other truncates. Environments with several agents are refused.

    Raises:
        UserError: a mask of another form, or too many pairs.

    Source: jumanji 1.1.2 (Bonnet et al., 2024), `env.py`, `types.py` and `specs.py`.
    """

    default_params = ()

    def __init__(self, env: Any, name: str):
        self.env = env
        specs = import_package("jumanji", "jumanji.specs")
        space = specs.jumanji_specs_to_gym_spaces(env.observation_spec)
        mask = space.spaces.get(MASK) if isinstance(space, spaces.Dict) else None
        self.masks = mask is not None
        self.shown: spaces.Space = space_without(space, MASK) if self.masks else space
        self.choices: spaces.Space = specs.jumanji_specs_to_gym_spaces(env.action_spec)
        self.together: tuple[int, ...] = ()
        if mask is not None and isinstance(self.choices, spaces.MultiDiscrete):
            self.together = tuple(int(n) for n in np.ravel(self.choices.nvec))
            count = math.prod(self.together)
            if mask.shape != self.together or count > MOST:
                raise UserError(
                    f"{name} has actions {self.choices} with a mask of shape {mask.shape}; "
                    f"supported is one choice, or several with a mask of all their pairs, up to "
                    f"{MOST:,} pairs"
                )
            self.choices = spaces.Discrete(count)

    def observation_space(self, params: Any) -> spaces.Space:
        """The environment's own, without its mask."""
        return self.shown

    def action_space(self, params: Any) -> spaces.Space:
        """One choice, several, or a Box."""
        return self.choices

    def action_mask(self, state: JumanjiState) -> Bool[Array, " actions"] | None:
        """The allowed actions in a state."""
        return state.mask

    def reset(self, key: Array, params: Any) -> tuple[Any, JumanjiState]:
        """Opens an episode."""
        inner, step = self.env.reset(key)
        return step.observation, self._state(inner, step.observation)

    def step_env(
        self, key: Array, state: JumanjiState, action: Array, params: Any
    ) -> tuple[Any, ...]:
        """One step; its random numbers follow from the state."""
        if self.together:
            action = jnp.stack(jnp.unravel_index(action, self.together))
        inner, step = self.env.step(state.inner, action)
        terminated = step.last() & (step.discount == 0)
        after = self._state(inner, step.observation)
        truncated = step.last() & ~terminated
        return step.observation, after, step.reward, terminated, truncated, step.extras

    def _state(self, inner: Any, observation: Any) -> JumanjiState:
        if not self.masks:
            return JumanjiState(inner, None)
        # A trapped snake has no allowed action, but must take one.
        mask = jnp.ravel(getattr(observation, MASK))
        return JumanjiState(inner, mask | ~jnp.any(mask))


def factory(place: str) -> Factory:
    """A function that builds an environment; its options are the constructor's numbers and texts.

    Raises:
        UserError: an unknown id, or the package is missing or of another version.
    """
    package = import_package("jumanji")
    known = package.registered_environments()
    if place not in known:
        raise unknown_name("jumanji environment", place, known)
    specs = import_package("jumanji", "jumanji.registration")
    entry = specs._REGISTRY[place]  # there is no public way to a class
    keywords = keywords_of(plain_options(specs.load(entry.entry_point)) | entry.kwargs)
    return lambda **options: Jumanji(package.make(place, **options), f"jumanji:{place}"), keywords
