"""Decks of cards, and the common part of tasks in which cards are dealt one by one."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import TimedOpenLoop, Transition
from clew.envs.popgym.difficulty import Sizes, sized
from clew.envs.recall import integers
from clew.errors import UserError, require_at_least

SUITS = ("spades", "diamonds", "clubs", "hearts")
RANKS = ("ace", *map(str, range(2, 11)), "jack", "queen", "king")
COLOURS = ("black", "red")
DECK = len(SUITS) * len(RANKS)
KINDS = {"colours": COLOURS, "suits": SUITS, "ranks": RANKS}
"""The attributes by which cards can be distinguished."""
MOST_DECKS = 64
HALF, LOWER = 16, np.uint32(2**16 - 1)
"""Half the number of bits, and a mask of the lower half."""


def kind_of(card: Any, by: str) -> Any:
    """A card's suit, rank or colour, as a number.

    Cards are numbered from 0: within a deck the four suits of a rank follow each other, and colours
    alternate.

    Args:
        card: its number, or an array of them, of NumPy or JAX.
        by: a key of `KINDS`.
    """
    if by == "ranks":
        return card % DECK // len(SUITS)
    return card % len(KINDS[by])


def shuffle(key: Key[Array, ""], num_decks: int) -> Int[Array, " cards"]:
    """All cards of the decks in random order.

    The order is that of `jax.random.permutation` for up to 31 decks, in less than half the time on
    a CPU, where XLA sorts numbers far faster than pairs: random 32-bit numbers are sorted by their
    lower and then by their upper halves, each with a card or a position in its lower half.
    """
    count = num_decks * DECK
    bits = jax.random.bits(jax.random.split(key)[1], (count,))
    places = jnp.arange(count, dtype=jnp.uint32)
    by_lower = jnp.sort(bits << HALF | places) & LOWER
    by_upper = jnp.sort(bits[by_lower] & ~LOWER | places) & LOWER
    return by_lower[by_upper].astype(jnp.int32)


def draw_cards(rng: np.random.Generator, num_decks: int) -> Int[np.ndarray, " cards"]:
    """The same with NumPy."""
    return rng.permutation(num_decks * DECK).astype(np.int32)


def forced_cards(name: str, given: Any, num_decks: int) -> Int[np.ndarray, " cards"]:
    """A user's order of cards; raises `UserError` unless it has every card once."""
    cards, count = integers(given), num_decks * DECK
    if cards is None or sorted(cards) != list(range(count)):
        raise UserError(
            f"{name} must have every card from 0 to {count - 1} once, in the order in which they "
            f"are dealt, got {given!r}"
        )
    return np.array(cards, np.int32)


def require_decks(num_decks: Any) -> None:
    """Refuses an invalid number of decks."""
    require_at_least("num_decks", num_decks, 1, MOST_DECKS)


class DealtState(NamedTuple):
    """The state of an episode."""

    kinds: Int[Array, " cards"]
    """The kinds of the cards, in the order in which they are dealt."""
    time: Int[Array, ""]
    """Number of actions taken."""


class Dealt(TimedOpenLoop):
    """A task in which cards are dealt one by one, whatever the actions."""

    SIZES: ClassVar[Sizes]
    """The number of decks, by difficulty."""
    num_decks: int = eqx.field(static=True)
    kind: eqx.AbstractVar[str]
    """The visible attribute of a card: a key of `KINDS`."""
    opening_is_costly = True
    metric_names = ()
    observation_size = 1

    def __init__(self, difficulty: str = "easy", num_decks: int | None = None):
        (self.num_decks,) = sized(self.SIZES, difficulty, num_decks=num_decks)
        require_decks(self.num_decks)

    @property
    def num_cards(self) -> int:
        """Number of cards in all decks."""
        return self.num_decks * DECK

    @property
    def longest(self) -> int:
        """A card for every step, and the first one."""
        return self.num_cards - 1

    def reset(self, key: Key[Array, ""]) -> tuple[DealtState, Array]:
        return self.reset_to(shuffle(key, self.num_decks))

    def reset_to(self, cards: Int[Array, " cards"] | np.ndarray) -> tuple[DealtState, Array]:
        """Deals these cards, in this order."""
        kinds = kind_of(jnp.asarray(cards, jnp.int32), self.kind).astype(jnp.int8)
        state = DealtState(kinds, jnp.zeros((), jnp.int32))
        return state, self.opening(state)

    def opening(self, state: DealtState) -> Array:
        """The first observation: the first card."""
        return state.kinds[0].astype(jnp.int32)

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        return {"cards": draw_cards(rng, self.num_decks)}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        return {"cards": forced_cards("cards", given["cards"], self.num_decks)}

    def render_text(self, state: Any, observation: Any) -> str:
        seen, count = np.asarray(observation).reshape(-1).tolist(), len(state.kinds)
        return f"step {int(state.time)} of {self.longest}: sees {seen}, of {count} cards\n"


def dealt(
    state: DealtState, observation: Array, reward: Float[Array, ""], terminated: Array
) -> tuple[DealtState, Transition]:
    """The state after an action, and its transition; nothing is ever truncated."""
    return state._replace(time=state.time + 1), Transition(
        observation=observation,
        reward=jnp.asarray(reward, jnp.float32),
        terminated=terminated,
        truncated=jnp.zeros((), jnp.bool_),
        metrics={},
    )


def shown_at(kinds: Int[Array, " cards"], place: Int[Array, ""]) -> Int[Array, ""]:
    """The kind of the card at a position; beyond the last card, that of the last one."""
    return kinds[jnp.minimum(place, len(kinds) - 1)].astype(jnp.int32)
