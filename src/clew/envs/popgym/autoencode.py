"""Watch cards being dealt, then recite them backwards."""

from typing import Any, ClassVar

import jax.numpy as jnp
from gymnasium.spaces import MultiDiscrete
from jaxtyping import Array, Int, Key

from clew.envs.base import Transition
from clew.envs.popgym.cards import SUITS, Dealt, DealtState, dealt, shown_at
from clew.envs.popgym.difficulty import Sizes

PLAY, WATCH = 0, 1


class Autoencode(Dealt):
    """Watch n cards being dealt, then report their suits in reverse order.

    The observation has two numbers: whether cards are watched (1) or recited (0), and a suit. While
    n cards are dealt, n - 1 actions do nothing; with the last card the first number becomes 0, and
    the next n actions recite blindly: the suit shown is then always 0. A right answer gives 1 / n,
    a wrong one -1 / n: the best return is 1, and guessing earns -0.5.

    Args:
        difficulty: easy, medium or hard: 1, 2 or 3 decks.
        num_decks: overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or an impossible number.

    Source: popgym 1.0.7, Autoencode. Deviation: the two numbers are a MultiDiscrete instead of a
    Tuple.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"num_decks": 1},
        "medium": {"num_decks": 2},
        "hard": {"num_decks": 3},
    }
    kind = "suits"
    observation_size = 2
    num_actions = len(SUITS)
    action_names = SUITS

    @property
    def observation_space(self) -> MultiDiscrete:
        """Watching or not, and a suit."""
        return MultiDiscrete([2, len(SUITS)])

    @property
    def longest(self) -> int:
        """All cards but the first are watched, then all are recited."""
        return 2 * self.num_cards - 1

    def opening(self, state: DealtState) -> Int[Array, " 2"]:
        return self._seen(jnp.asarray(WATCH), state.kinds[0])

    def step(
        self, state: DealtState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[DealtState, Transition]:
        last = self.num_cards - 1
        watches, following = state.time < last, state.time + 1
        asked = shown_at(state.kinds, jnp.maximum(2 * last - state.time, 0))
        reward = jnp.where(jnp.asarray(action) == asked, 1.0, -1.0) * (1.0 / self.num_cards)
        mode = jnp.where(following < last, WATCH, PLAY)
        card = jnp.where(watches, shown_at(state.kinds, following), 0)
        observation = self._seen(mode, card)
        ends = state.time >= self.longest - 1
        return dealt(state, observation, jnp.where(watches, 0.0, reward), ends)

    def remembered(self, state: DealtState) -> dict[str, Any]:
        return {f"card {i}": state.kinds[i].astype(jnp.int32) for i in range(8)}

    def _seen(self, mode: Int[Array, ""], card: Int[Array, ""]) -> Int[Array, " 2"]:
        return jnp.stack([mode.astype(jnp.int32), card.astype(jnp.int32)])
