"""Concentration: turn two cards at a time and find all pairs."""

import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import MultiDiscrete
from jaxtyping import Array, Bool, Int, Key

from clew.envs.base import Environment, Transition
from clew.envs.popgym.cards import (
    DECK,
    KINDS,
    draw_cards,
    forced_cards,
    kind_of,
    require_decks,
    shuffle,
)
from clew.envs.popgym.difficulty import Sizes, sized
from clew.errors import require_choice

NONE = -1
PAIRED_BY = ("colours", "ranks")
"""Without suits: a deck has 13 of each, which do not make pairs."""


class ConcentrationState(NamedTuple):
    """The state of an episode."""

    kinds: Int[Array, " cards"]
    """What lies at every place."""
    found: Bool[Array, " cards"]
    """Cards whose pair was found: these lie face up."""
    first: Int[Array, ""]
    """The position of the card turned first; `NONE` if the next one is the first."""
    time: Int[Array, ""]
    """Number of actions taken."""


class Concentration(Environment):
    """Turn two cards, one with each action; two of a kind stay face up.

    The observation has every position: the kind of a card that lies face up, otherwise the number
    of kinds. The first card of a turn is seen twice, the second one once. A pair gives 2 / n, with
    n cards; two different cards, or one card turned twice, give -2 / m, where m = ceil(2 n - n / (2
    n - 1)) is the number of actions after which an episode is truncated. A card that already lies
    face up ends the turn with -1 / m for every card turned in it. The best return is 1 minus the
    cost of finding pairs by chance.

    Actions: the position to turn, from 0; positions outside the range act as the nearest one.

    Args:
        difficulty: easy, medium or hard: colours of 1 deck, colours of 2, ranks of 1.
        num_decks: overrides the difficulty.
        kind: what makes a pair, colours or ranks; overrides the difficulty.

    Raises:
        UserError: an unknown difficulty or kind, or an impossible number.

    Source: popgym 1.0.7, Concentration.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"num_decks": 1, "kind": "colours"},
        "medium": {"num_decks": 2, "kind": "colours"},
        "hard": {"num_decks": 1, "kind": "ranks"},
    }
    num_decks: int = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    opening_is_costly = True
    metric_names = ("found",)

    def __init__(
        self, difficulty: str = "easy", num_decks: int | None = None, kind: str | None = None
    ):
        self.num_decks, self.kind = sized(self.SIZES, difficulty, num_decks=num_decks, kind=kind)
        require_decks(self.num_decks)
        require_choice("kind", self.kind, PAIRED_BY)
        self.num_actions = self.observation_size = self.num_decks * DECK

    @property
    def observation_space(self) -> MultiDiscrete:
        """What lies at every place."""
        return MultiDiscrete([len(KINDS[self.kind]) + 1] * self.num_actions)

    @property
    def time_limit(self) -> int:
        """Number of actions in the longest episode."""
        cards = self.num_actions
        return math.ceil(2 * cards - cards / (2 * cards - 1))

    @property
    def shortest(self) -> int:
        return self.num_actions

    def reset(self, key: Key[Array, ""]) -> tuple[ConcentrationState, Int[Array, " cards"]]:
        return self.reset_to(shuffle(key, self.num_decks))

    def reset_to(
        self, cards: Int[Array, " cards"] | np.ndarray
    ) -> tuple[ConcentrationState, Int[Array, " cards"]]:
        """Lays out these cards in this order."""
        kinds = kind_of(jnp.asarray(cards, jnp.int32), self.kind).astype(jnp.int8)
        hidden, zero = jnp.zeros(self.num_actions, bool), jnp.zeros((), jnp.int32)
        state = ConcentrationState(kinds, hidden, jnp.full((), NONE, jnp.int32), zero)
        return state, self._observe(state, hidden)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {"cards": draw_cards(rng, self.num_decks)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        return {"cards": forced_cards("cards", given["cards"], self.num_decks)}

    def step(
        self, state: ConcentrationState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[ConcentrationState, Transition]:
        place = jnp.clip(jnp.asarray(action).astype(jnp.int32), 0, self.num_actions - 1)
        places = jnp.arange(self.num_actions)
        second = state.first != NONE
        turned = (places == place) | (places == state.first)
        wasted = state.found[place]
        pair = (state.kinds[place] == state.kinds[jnp.maximum(state.first, 0)]) & second
        pair &= ~wasted & (place != state.first)
        found = state.found | (turned & pair)
        lost = jnp.where(wasted, 1.0 + second.astype(jnp.float32), 2.0) / self.time_limit
        over = wasted | second
        earned = jnp.where(pair, 2.0 / self.num_actions, -lost)
        after = ConcentrationState(
            kinds=state.kinds,
            found=found,
            first=jnp.where(over, NONE, place),
            time=state.time + 1,
        )
        return after, Transition(
            observation=self._observe(state, turned),
            reward=jnp.where(over, earned, 0.0).astype(jnp.float32),
            terminated=jnp.all(found),
            truncated=after.time >= self.time_limit,
            metrics={"found": jnp.mean(found.astype(jnp.float32))},
        )

    def render_text(self, state: Any, observation: Any) -> str:
        hidden = len(KINDS[self.kind])
        places = ["." if int(kind) == hidden else f"{int(kind):x}" for kind in observation]
        rows = [places[i : i + 13] for i in range(0, len(places), 13)]
        return "\n".join(" ".join(row) for row in rows) + "\n"

    def _observe(
        self, state: ConcentrationState, turned: Bool[Array, " cards"]
    ) -> Int[Array, " cards"]:
        visible = state.found | turned
        return jnp.where(visible, state.kinds.astype(jnp.int32), len(KINDS[self.kind]))
