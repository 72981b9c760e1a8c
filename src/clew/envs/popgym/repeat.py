"""Repeat what was shown: the first card, or the card from some steps ago."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from gymnasium.spaces import Discrete
from jaxtyping import Array, Int, Key

from clew.envs.base import Transition
from clew.envs.popgym.cards import SUITS, Dealt, DealtState, dealt, shown_at
from clew.envs.popgym.difficulty import Sizes, sized
from clew.errors import UserError, require_at_least


class _Repeat(Dealt):
    """Every step shows a suit and asks for a suit; the last card ends the episode."""

    kind = "suits"
    num_actions = len(SUITS)
    action_names = SUITS

    @property
    def observation_space(self) -> Discrete:
        """A suit."""
        return Discrete(len(SUITS))

    def _answered(
        self, state: DealtState, right: Array, asked: Array | bool, questions: int
    ) -> tuple[DealtState, Transition]:
        reward = jnp.where(right, 1.0, -1.0) * (1.0 / questions)
        observation = shown_at(state.kinds, state.time + 1)
        ends = state.time >= self.longest - 1
        return dealt(state, observation, jnp.where(asked, reward, 0.0), ends)


class RepeatFirst(_Repeat):
    """Report the suit of the episode's first card at every step.

    With n cards there are n - 1 steps; each observes the next card's suit. A right answer gives 1 /
    (n - 1), a wrong one -1 / (n - 1): the best return is 1, and guessing earns -0.5. An action that
    is not a suit is wrong.

    Args:
        difficulty: easy, medium or hard: 1, 8 or 16 decks.
        num_decks: overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, RepeatFirst. Its documentation mentions an indicator of the first card;
    neither its code nor this task has one.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"num_decks": 1},
        "medium": {"num_decks": 8},
        "hard": {"num_decks": 16},
    }

    def step(
        self, state: DealtState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[DealtState, Transition]:
        right = jnp.asarray(action) == state.kinds[0].astype(jnp.int32)
        return self._answered(state, right, True, self.num_cards - 1)

    def remembered(self, state: DealtState) -> dict[str, Any]:
        return {"first suit": state.kinds[0].astype(jnp.int32)}


class RepeatPrevious(_Repeat):
    """Report at every step the suit of the card that was shown k - 1 steps before the last one.

    With n cards there are n - 1 steps; each observes the next card's suit. No answer counts before
    k cards have been seen; then a right answer gives 1 / (n - k), a wrong one -1 / (n - k): the
    best return is 1, and guessing earns -0.5. With k = 1 the answer is the card just seen. An
    action that is not a suit is wrong.

    Args:
        difficulty: easy, medium or hard: 1, 2 or 3 decks and k = 4, 32 or 64.
        num_decks: overrides the difficulty.
        k: overrides the difficulty; below the number of cards.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, RepeatPrevious.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"num_decks": 1, "k": 4},
        "medium": {"num_decks": 2, "k": 32},
        "hard": {"num_decks": 3, "k": 64},
    }
    k: int = eqx.field(static=True)

    def __init__(
        self, difficulty: str = "easy", num_decks: int | None = None, k: int | None = None
    ):
        Dealt.__init__(self, difficulty, num_decks)  # type checkers see another one in between
        (self.k,) = sized(self.SIZES, difficulty, k=k)
        require_at_least("k", self.k, 1)
        if self.k >= self.num_cards:
            raise UserError(f"k must be below the {self.num_cards} cards, got {self.k}")

    def step(
        self, state: DealtState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[DealtState, Transition]:
        place = state.time + 1 - self.k
        right = jnp.asarray(action) == shown_at(state.kinds, jnp.maximum(place, 0))
        return self._answered(state, right, place >= 0, self.num_cards - self.k)

    def remembered(self, state: DealtState) -> dict[str, Any]:
        return {f"card {i}": state.kinds[i].astype(jnp.int32) for i in range(min(self.k, 8))}
