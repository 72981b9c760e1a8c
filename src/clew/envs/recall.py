"""The common part of tasks that show some bits and ask for one answer at the end."""

import numbers
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Array, Bool, Float, Int, Key

from clew.envs.base import TimedOpenLoop, Transition
from clew.errors import UserError, require_at_least

RIGHT_REWARD, WRONG_REWARD = 1.0, -1.0
METRICS = ("success",)
FIRST_BIT = 2
"""Where the bits begin in an observation: after the clock and the query."""
LARGEST_SEED = 2**32 - 1
STREAM_LENGTH = 10_000
"""Number of episodes of a fixed stream, as in a published run."""
LARGEST_STREAM = 2**20
"""The largest number: episodes are drawn in advance, a million in a few seconds."""


class Stream(NamedTuple):
    """The draws of a fixed random stream for each episode, in order."""

    contexts: Int[np.ndarray, "episodes bits"]
    """The bits, 0 or 1."""
    queries: Int[np.ndarray, " episodes"]
    """Which bit is asked for; 0 if the task asks for none."""


@lru_cache(maxsize=64)
def bsuite_stream(num_bits: int, seed: int, length: int, with_query: bool) -> Stream:
    """The episodes that bsuite's memory chain draws from NumPy's `RandomState(seed)`.

    The task, and the distributed memory built on it, draw bits and then a query in their
    constructor, and discard them. Then every reset draws its bits, and the memory chain's also a
    query, even if there is only one bit.

    Args:
        num_bits: bits of an episode.
        seed: 0 in every published run, whatever the run's own seed: training and evaluation see the
            same episodes, and the 100 episodes of an evaluation are the first 100 of training.
        length: number of episodes.
        with_query: True as in bsuite's memory chain, False as in Makkink's distributed memory.

    Source: the code of bsuite, and that published with Makkink (2021).
    """
    rng = np.random.RandomState(seed)
    rng.binomial(1, 0.5, num_bits)
    rng.randint(num_bits)
    contexts = np.empty((length, num_bits), np.int32)
    queries = np.zeros(length, np.int32)
    for episode in range(length):
        contexts[episode] = rng.binomial(1, 0.5, num_bits)
        if with_query:
            queries[episode] = rng.randint(num_bits)
    contexts.flags.writeable = queries.flags.writeable = False  # the cache hands them out again
    return Stream(contexts, queries)


class Draw(NamedTuple):
    """The random part of an episode."""

    context: Int[Array, " bits"]
    """The bits, 0 or 1."""
    query: Int[Array, ""]
    """Which of them is asked for; 0 if the task asks for none."""
    episode: Int[Array, ""]
    """Number of the episode in the fixed stream; always 0 without a stream."""


class Episodes(eqx.Module):
    """The source of episodes: random keys, or a fixed stream, which needs no keys.

    Raises:
        UserError: an invalid seed or length of a stream.
    """

    num_bits: int = eqx.field(static=True)
    """Bits of an episode, at least 1."""
    with_query: bool = eqx.field(static=True)
    """Whether one of them is asked for."""
    stream_seed: int | None = eqx.field(static=True)
    """None draws new episodes; a number replays that stream."""
    stream_length: int = eqx.field(static=True)
    """The stream repeats after this many episodes."""

    def __check_init__(self) -> None:
        check_stream(self.stream_seed, self.stream_length)

    def first(self, key: Key[Array, ""]) -> Draw:
        """A random episode, or the first one of the stream."""
        if self.stream_seed is not None:
            return self.at(0)
        context_key, query_key = jax.random.split(key)
        bits = jax.random.bits(context_key, (self.num_bits,), jnp.uint32) & 1
        zero = jnp.zeros((), jnp.int32)
        query = jax.random.randint(query_key, (), 0, self.num_bits) if self.with_query else zero
        return Draw(bits.astype(jnp.int32), query, zero)

    def after(self, episode: Int[Array, ""], key: Key[Array, ""]) -> Draw:
        """A random episode, or the one that follows the given one in the stream."""
        return self.first(key) if self.stream_seed is None else self.at(episode + 1)

    def at(self, episode: Int[Array, ""] | int) -> Draw:
        """The episode of the stream with the given number, from 0.

        Raises:
            UserError: if there is no stream.
        """
        if self.stream_seed is None:
            raise UserError("reset_at needs a fixed stream: give stream_seed, 0 as published")
        contexts, queries = bsuite_stream(
            self.num_bits, self.stream_seed, self.stream_length, self.with_query
        )
        episode = jnp.asarray(episode, jnp.int32) % self.stream_length
        return Draw(jnp.asarray(contexts)[episode], jnp.asarray(queries)[episode], episode)

    def forced(self, context: Any, query: Any = 0) -> Draw:
        """The given bits and query; a stream continues with its first episode after them.

        Raises:
            UserError: a wrong number of bits.
        """
        context = jnp.asarray(context, jnp.int32)
        if context.shape != (self.num_bits,):
            raise UserError(
                f"context must be num_bits {self.num_bits} bits, got shape {context.shape}"
            )
        return Draw(context, jnp.asarray(query, jnp.int32), jnp.full((), -1, jnp.int32))


def draw_bits(
    episodes: Episodes, rng: np.random.Generator, number: int
) -> tuple[Int[np.ndarray, " bits"], int]:
    """Bits and query: random ones, or those of an episode of the fixed stream."""
    if episodes.stream_seed is not None:
        stream = bsuite_stream(
            episodes.num_bits, episodes.stream_seed, episodes.stream_length, episodes.with_query
        )
        place = number % episodes.stream_length
        return stream.contexts[place], int(stream.queries[place])
    context = rng.integers(2, size=episodes.num_bits, dtype=np.int32)
    return context, int(rng.integers(episodes.num_bits)) if episodes.with_query else 0


class Recall(TimedOpenLoop):
    """A task that shows some bits, then waits."""

    boolean_metrics = METRICS

    @property
    def observation_space(self) -> Box:
        low, high = np.zeros((2, self.observation_size), np.float32)
        low[FIRST_BIT:] = -1
        high[:] = 1
        high[1] = max(1, self.observation_size - FIRST_BIT - 1)
        return Box(low, high, dtype=np.float32)


class SizedRecall(Recall):
    """A recall task of one size, with two actions; its state has a `Draw` as `drawn`."""

    memory_length: eqx.AbstractVar[int]
    """Time of the final observation."""
    episodes: eqx.AbstractVar[Episodes]
    num_actions = 2
    metric_names = METRICS

    def render_text(self, state: Any, observation: Float[np.ndarray, " n"]) -> str:
        """The observation: + and - for bits of 1 and 0, a dot for every bit that is not shown."""
        _, query, *bits = observation
        marks = "".join("-.+"[int(bit) + 1] for bit in bits)
        time = f"time {shown_time(state)} of {self.memory_length}"
        return f"|{marks}| query {int(query)}, {time}\n"

    def shown(
        self, time: Int[Array, ""], query: Int[Array, ""], bits: Int[Array, " bits"]
    ) -> Float[Array, " n"]:
        """An observation: the clock, the query and the bits."""
        numbers = jnp.concatenate([query[None], bits]).astype(jnp.float32)
        return jnp.concatenate([jnp.asarray(clock(self.memory_length))[time][None], numbers])


def shown_time(state: Any) -> int:
    """The time that the observation before the next action shows.

    A state's `time` is that of the observation after it, except for the memory chain's first one,
    which is shown twice.
    """
    return max(0, int(state.time) - 1)


def clock(memory_length: int) -> Float[np.ndarray, " times"]:
    """The first number of every observation, for t = 0 to memory_length.

        clock[t] = 1 - t / memory_length

    in float64, then rounded: computed in float32 it would differ from bsuite's in places.
    """
    return (1 - np.arange(memory_length + 1) / memory_length).astype(np.float32)


def judge(
    observation: Float[Array, " n"],
    action: Int[Array, ""],
    answer: Int[Array, ""],
    last: Bool[Array, ""],
) -> Transition:
    """The transition of a task in which only the last action counts.

    Args:
        observation: after the action.
        action: the action taken; anything but `answer` is wrong, including integers that are not
            actions.
        answer: the right answer, 0 or 1.
        last: whether this action is the answer.
    """
    success = last & (jnp.asarray(action).astype(jnp.int32) == answer)
    reward = jnp.where(success, RIGHT_REWARD, WRONG_REWARD)
    return Transition(
        observation=observation,
        reward=jnp.where(last, reward, 0.0).astype(jnp.float32),
        terminated=last,
        truncated=jnp.zeros_like(last),
        metrics={"success": success.astype(jnp.float32)},
    )


def number_bits(bits: Int[Array, " bits"]) -> dict[str, Int[Array, ""]]:
    """Every bit by its name, "bit 0" and so on."""
    return {f"bit {index}": bits[index] for index in range(len(bits))}


def forced_context(given: Any, drawn: np.ndarray) -> np.ndarray:
    """The bits given, or those drawn; raises `UserError` unless they are bits, and as many."""
    if given is None:
        return drawn.copy()
    bits = integers(given)
    if bits is None or len(bits) != len(drawn) or not set(bits) <= {0, 1}:
        raise UserError(f"context must be num_bits {len(drawn)} bits, each 0 or 1, got {given!r}")
    return np.array(bits, np.int32)


def forced_query(given: Any, drawn: int, num_bits: int) -> int:
    """The query given, or the one drawn; raises `UserError` if there is no such bit."""
    if given is None:
        return drawn
    query = integers([given])
    if query is None or not 0 <= query[0] < num_bits:
        raise UserError(
            f"query must be the index of a bit, an integer from 0 to {num_bits - 1}, got {given!r}"
        )
    return query[0]


def integers(value: Any) -> list[int] | None:
    """The value as a list of integers, or None if it is not a sequence of integers."""
    if not isinstance(value, list | tuple | np.ndarray):
        return None
    whole = all(isinstance(v, numbers.Integral) and not isinstance(v, bool) for v in value)
    return [int(v) for v in value] if whole else None


def check_stream(seed: Any, length: Any) -> None:
    """Refuses an invalid seed (None stands for new episodes) or length of a stream."""
    if seed is not None:
        require_at_least("stream_seed", seed, 0, LARGEST_SEED)
    require_at_least("stream_length", length, 1, LARGEST_STREAM)
