"""Report how often a card has been dealt so far."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import MultiDiscrete
from jaxtyping import Array, Int, Key

from clew.envs.base import TimedOpenLoop, Transition
from clew.envs.popgym.cards import (
    DECK,
    KINDS,
    draw_cards,
    forced_cards,
    kind_of,
    require_decks,
    shown_at,
    shuffle,
)
from clew.envs.popgym.difficulty import Sizes, sized
from clew.errors import UserError, require_choice


class CountRecallState(NamedTuple):
    """The state of an episode."""

    values: Int[Array, " cards"]
    """The kinds of the dealt cards, in order."""
    queries: Int[Array, " cards"]
    """The kinds asked for, in order."""
    time: Int[Array, ""]
    """Number of actions taken."""


class CountRecall(TimedOpenLoop):
    """Report how often the kind of card that is asked for has been dealt so far.

    There are two shuffled stacks of n cards: at every step a card is dealt from one, and the card
    of the other is the question. Both are observed. The answer counts the cards dealt up to and
    including the one just seen. A right answer gives 1 / (n - 1), a wrong one -1 / (n - 1); with n
    - 1 steps, the best return is 1.

    Args:
        difficulty: easy, medium or hard: colours of 1 deck, suits of 2, ranks of 4.
        num_decks: overrides the difficulty.
        kind: the attribute that counts: colours, suits or ranks; overrides the difficulty.
        as_published: leave out the action for the largest count, as in popgym before 1.0.7, with
            which the published scores were made.

    Raises:
        UserError: an unknown difficulty or kind, or an impossible number.

    Source: popgym 1.0.7, CountRecall.
    """

    SIZES: ClassVar[Sizes] = {
        "easy": {"num_decks": 1, "kind": "colours"},
        "medium": {"num_decks": 2, "kind": "suits"},
        "hard": {"num_decks": 4, "kind": "ranks"},
    }
    num_decks: int = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    observation_size = 2
    opening_is_costly = True
    metric_names = ()

    def __init__(
        self,
        difficulty: str = "easy",
        num_decks: int | None = None,
        kind: str | None = None,
        as_published: bool = False,
    ):
        self.num_decks, self.kind = sized(self.SIZES, difficulty, num_decks=num_decks, kind=kind)
        require_decks(self.num_decks)
        require_choice("kind", self.kind, KINDS)
        if not isinstance(as_published, bool):
            raise UserError(f"as_published must be True or False, got {as_published!r}")
        most = self.num_cards // len(KINDS[self.kind])
        self.num_actions = most if as_published else most + 1

    @property
    def num_cards(self) -> int:
        """Number of cards in a stack."""
        return self.num_decks * DECK

    @property
    def observation_space(self) -> MultiDiscrete:
        """The card dealt, and the one asked for."""
        return MultiDiscrete([len(KINDS[self.kind])] * 2)

    @property
    def longest(self) -> int:
        """A card for every step, and the first one."""
        return self.num_cards - 1

    def reset(self, key: Key[Array, ""]) -> tuple[CountRecallState, Int[Array, " 2"]]:
        values, queries = jax.random.split(key)
        return self.reset_to(shuffle(values, self.num_decks), shuffle(queries, self.num_decks))

    def reset_to(
        self, cards: Int[Array, " cards"] | np.ndarray, queries: Int[Array, " cards"] | np.ndarray
    ) -> tuple[CountRecallState, Int[Array, " 2"]]:
        """Deals `cards` and asks for `queries`, in this order."""
        values, asked = (
            kind_of(jnp.asarray(stack, jnp.int32), self.kind).astype(jnp.int8)
            for stack in (cards, queries)
        )
        state = CountRecallState(values, asked, jnp.zeros((), jnp.int32))
        return state, self._observe(state, state.time)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {name: draw_cards(rng, self.num_decks) for name in ("cards", "queries")}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        return drawn | {n: forced_cards(n, cards, self.num_decks) for n, cards in given.items()}

    def step(
        self, state: CountRecallState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[CountRecallState, Transition]:
        asked = shown_at(state.queries, state.time)
        seen = jnp.arange(self.num_cards) <= state.time
        count = jnp.sum(seen & (state.values.astype(jnp.int32) == asked))
        right = jnp.asarray(action) == count
        transition = Transition(
            observation=self._observe(state, state.time + 1),
            reward=jnp.where(right, 1.0, -1.0).astype(jnp.float32) * (1.0 / self.longest),
            terminated=state.time >= self.longest - 1,
            truncated=jnp.zeros((), jnp.bool_),
            metrics={},
        )
        return state._replace(time=state.time + 1), transition

    def render_text(self, state: Any, observation: Any) -> str:
        names = KINDS[self.kind]
        value, query = (names[int(number)] for number in observation)
        return f"step {int(state.time)} of {self.longest}: {value}; how many {query} so far?\n"

    def _observe(self, state: CountRecallState, time: Int[Array, ""]) -> Int[Array, " 2"]:
        return jnp.stack([shown_at(state.values, time), shown_at(state.queries, time)])
