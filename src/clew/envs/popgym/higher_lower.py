"""Guess whether the next card is higher or lower."""

from typing import ClassVar

import jax.numpy as jnp
from gymnasium.spaces import Discrete
from jaxtyping import Array, Int, Key

from clew.envs.base import Transition
from clew.envs.popgym.cards import RANKS, Dealt, DealtState, dealt, shown_at
from clew.envs.popgym.difficulty import Sizes


class HigherLower(Dealt):
    """Guess at every step whether the next card's rank is higher or lower than the last one's.

    With n cards there are n - 1 steps; each observes the next card's rank. A right guess gives 1 /
    n, a wrong one -1 / n, an equal rank 0. An agent that counts cards knows better what is left.

    Actions: 0 higher, anything else lower.

    Args:
        difficulty: easy, medium or hard: 1, 2 or 3 decks.
        num_decks: overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, HigherLower.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"num_decks": 1},
        "medium": {"num_decks": 2},
        "hard": {"num_decks": 3},
    }
    kind = "ranks"
    num_actions = 2
    action_names = ("higher", "lower")

    @property
    def observation_space(self) -> Discrete:
        """A rank."""
        return Discrete(len(RANKS))

    def step(
        self, state: DealtState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[DealtState, Transition]:
        now, following = shown_at(state.kinds, state.time), shown_at(state.kinds, state.time + 1)
        right = (following > now) == (jnp.asarray(action) == 0)
        earned = jnp.where(right, 1.0, -1.0) * (1.0 / self.num_cards)
        reward = jnp.where(following == now, 0.0, earned)
        return dealt(state, following, reward, state.time >= self.longest - 1)
