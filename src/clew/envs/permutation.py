"""Cards are shown one by one and played in the same order: a task with masked actions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Bool, Float, Int, Key

from clew.envs.base import Environment, Transition
from clew.envs.recall import integers
from clew.errors import UserError, require_at_least, require_rate


class PermutationState(NamedTuple):
    """The state of an episode."""

    order: Int[Array, " cards"]
    """The cards in the order in which they are shown."""
    played: Bool[Array, " cards"]
    """Which of them have been played."""
    time: Int[Array, ""]
    """Actions taken."""
    correct: Int[Array, ""]
    """Number of cards played in their turn."""
    forbidden: Int[Array, ""]
    """Number of forbidden actions taken."""


class Permutation(Environment):
    """See n cards one by one, then play each of them once, in the same order.

    The observation of time t = 0 to 2n has

    ```text
    shown    n numbers   the card order[t] one-hot for t < n; else 0
    played   n numbers   1 for every card that has been played
    turn     1 number    1 from t = n on, when cards are played
    ```

    Actions: 0 to n-1 play a card, n waits. For t < n only waiting is allowed; from then on only
    cards that have not been played, as in `action_mask`. A card played at time t = n + k earns 1/n
    if it is order[k], otherwise 0. The episode ends after 2n actions.

    A forbidden action changes only the time and earns -penalty. With `masks` no policy takes one;
    without, the policy has to learn not to, from the same observations.

    Metrics: "success" (all cards in order, no forbidden action), 0 or 1; "correct", the fraction of
    cards played in their turn; "forbidden", the number of forbidden actions.

    Args:
        num_cards: n, at least 2.
        masks: whether there is an action mask.
        penalty: for a forbidden action, at least 0.

    Raises:
        UserError: an impossible number.
    """

    num_cards: int = eqx.field(static=True)
    masks: bool = eqx.field(static=True)
    penalty: float = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    metric_names = ("success", "correct", "forbidden")

    def __init__(self, num_cards: int = 5, masks: bool = True, penalty: float = 0.1):
        require_at_least("num_cards", num_cards, 2)
        require_rate("penalty", penalty)
        if not isinstance(masks, bool):
            raise UserError(f"masks must be True or False, got {masks!r}")
        self.num_cards, self.masks, self.penalty = num_cards, masks, penalty
        self.observation_size, self.num_actions = 2 * num_cards + 1, num_cards + 1

    @property
    def shortest(self) -> int:
        """Every episode has the same number of steps: all cards are shown, then played."""
        return 2 * self.num_cards

    @property
    def observation_space(self) -> Box:
        return Box(0.0, 1.0, (self.observation_size,), np.float32)

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The cards by number, then waiting."""
        return (*(f"card {card}" for card in range(self.num_cards)), "wait")

    def reset(self, key: Key[Array, ""]) -> tuple[PermutationState, Float[Array, " n"]]:
        return self.reset_to(jax.random.permutation(key, self.num_cards))

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {"order": rng.permutation(self.num_cards).astype(np.int32)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        order = integers(given["order"])
        if order is None or sorted(order) != list(range(self.num_cards)):
            raise UserError(
                f"order must have every card from 0 to {self.num_cards - 1} once, got "
                f"{given['order']!r}"
            )
        return {"order": np.array(order, np.int32)}

    def reset_to(
        self, order: Int[Array, " cards"] | Sequence[int]
    ) -> tuple[PermutationState, Float[Array, " n"]]:
        zero = jnp.zeros((), jnp.int32)
        order = jnp.asarray(order, jnp.int32)
        state = PermutationState(order, jnp.zeros(self.num_cards, bool), zero, zero, zero)
        return state, self._observe(state)

    def action_mask(self, state: PermutationState) -> Bool[Array, " n"] | None:
        """Waiting while cards are shown, then the cards that have not been played."""
        return self._allowed(state) if self.masks else None

    def step(
        self, state: PermutationState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[PermutationState, Transition]:
        action = jnp.asarray(action).astype(jnp.int32)
        allowed = self._allowed(state)[action]
        plays = allowed & (action < self.num_cards)
        turn = jnp.maximum(state.time - self.num_cards, 0)
        right = plays & (state.order[turn] == action)
        after = PermutationState(
            order=state.order,
            played=state.played | (plays & (jnp.arange(self.num_cards) == action)),
            time=state.time + 1,
            correct=state.correct + right.astype(jnp.int32),
            forbidden=state.forbidden + (~allowed).astype(jnp.int32),
        )
        earned = jnp.where(right, 1.0 / self.num_cards, 0.0)
        correct = after.correct.astype(jnp.float32) / self.num_cards
        perfect = (after.correct == self.num_cards) & (after.forbidden == 0)
        return after, Transition(
            observation=self._observe(after),
            reward=jnp.where(allowed, earned, -self.penalty).astype(jnp.float32),
            terminated=after.time >= 2 * self.num_cards,
            truncated=jnp.zeros((), jnp.bool_),
            metrics={
                "success": perfect.astype(jnp.float32),
                "correct": correct.astype(jnp.float32),
                "forbidden": after.forbidden.astype(jnp.float32),
            },
        )

    def remembered(self, state: PermutationState) -> dict[str, Int[Array, ""]]:
        return {f"card {turn}": state.order[turn] for turn in range(self.num_cards)}

    def render_text(self, state: Any, observation: Float[np.ndarray, " n"]) -> str:
        n, time = self.num_cards, int(state.time)
        shown = " ".join(str(card) for card in state.order[: min(time + 1, n)])
        left = " ".join(str(card) for card in range(n) if not state.played[card])
        return f"shown {shown}\n" if time < n else f"turn {time - n} of {n}, left {left}\n"

    def _allowed(self, state: PermutationState) -> Bool[Array, " n"]:
        shows = state.time < self.num_cards
        return jnp.append(~state.played & ~shows, shows)

    def _observe(self, state: PermutationState) -> Float[Array, " n"]:
        shows = state.time < self.num_cards
        card = state.order[jnp.minimum(state.time, self.num_cards - 1)]
        shown = jax.nn.one_hot(card, self.num_cards, dtype=jnp.float32) * shows.astype(jnp.float32)
        turn = (~shows).astype(jnp.float32)
        return jnp.concatenate([shown, state.played.astype(jnp.float32), turn[None]])
