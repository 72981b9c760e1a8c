"""Several sizes of a recall task as one environment, so that one program trains on all of them."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import Transition
from clew.envs.distributed_memory import DistributedMemory, fixed_schedule
from clew.envs.memory_chain import MemoryChain
from clew.envs.recall import FIRST_BIT, METRICS, Recall, bsuite_stream, clock, judge
from clew.errors import UserError

_NEVER = -1
"""The time of bits that an episode does not have."""


class MixedState(NamedTuple):
    """The state of an episode."""

    variant: Int[Array, ""]
    """Which of the sizes this environment always plays."""
    context: Int[Array, " bits"]
    """The bits, 0 or 1; 0 beyond those of the variant."""
    query: Int[Array, ""]
    episode: Int[Array, ""]
    """Number of the episode in the fixed stream; always 0 without a stream."""
    times: Int[Array, " bits"]
    """When each bit is shown."""
    time: Int[Array, ""]
    """The time that the next observation shows."""


class MixedRecall(Recall):
    """Every environment plays one of several sizes of the memory chain or the distributed memory.

    The observations, draws and rewards of variant v are exactly those of `variants[v]` alone with
    the same keys; observations of fewer bits are padded with zeros at the end. `reset` opens
    variant 0, `reset_in` any variant.

    Args:
        task: "memory_chain" or "distributed_memory".
        variants: the options of each; all must have the same stream, and in the distributed memory
            the same memory_length and schedule.

    Raises:
        UserError: impossible options, or variants that cannot be mixed.
    """

    task: str = eqx.field(static=True)
    sizes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    schedule: str = eqx.field(static=True)
    stream: tuple[int | None, int] = eqx.field(static=True)
    observation_size: int = eqx.field(static=True)
    num_actions = 2
    metric_names = METRICS

    def __init__(self, task: str, variants: Sequence[Mapping[str, Any]]):
        chain = task == "memory_chain"
        made = [MemoryChain(**v) if chain else DistributedMemory(**v) for v in variants]
        self.task = task
        self.sizes = tuple((env.memory_length, env.episodes.num_bits) for env in made)
        schedules = {e.schedule if isinstance(e, DistributedMemory) else "" for e in made}
        streams = {(env.episodes.stream_seed, env.episodes.stream_length) for env in made}
        lengths = {length for length, _ in self.sizes}
        if len(streams) > 1 or len(schedules) > 1 or (not chain and len(lengths) > 1):
            raise UserError(f"these variants of {task} cannot be mixed: {list(variants)}")
        (self.schedule,), (self.stream,) = schedules, streams
        self.observation_size = FIRST_BIT + self._bits

    @property
    def _bits(self) -> int:
        return max(bits for _, bits in self.sizes)

    @property
    def shortest(self) -> int:
        """Steps of an episode of the shortest variant."""
        return min(length for length, _ in self.sizes) + self._shown_twice

    @property
    def longest(self) -> int:
        """Steps of an episode of the longest variant."""
        return max(length for length, _ in self.sizes) + self._shown_twice

    @property
    def _shown_twice(self) -> bool:
        return self.task == "memory_chain"

    def reset(self, key: Key[Array, ""]) -> tuple[MixedState, Float[Array, " n"]]:
        """Opens an episode of variant 0."""
        return self.reset_in(0, key)

    def reset_in(
        self, variant: Int[Array, ""] | int, key: Key[Array, ""]
    ) -> tuple[MixedState, Float[Array, " n"]]:
        """Opens a random episode of a variant, or the first one of its fixed stream."""
        return self._draw(jnp.asarray(variant, jnp.int32), jnp.zeros((), jnp.int32), key)

    def reset_at_in(
        self, variant: Int[Array, ""] | int, episode: Int[Array, ""] | int
    ) -> tuple[MixedState, Float[Array, " n"]]:
        """Opens an episode of a variant's fixed stream by its number, from 0.

        Raises:
            UserError: without a stream.
        """
        if self.stream[0] is None or self.schedule == "fresh":
            raise UserError("an episode has a number only in a fixed stream with fixed times")
        episode = jnp.asarray(episode, jnp.int32)
        return self._draw(jnp.asarray(variant, jnp.int32), episode, jax.random.key(0))

    def next_episode(
        self, state: MixedState, key: Key[Array, ""]
    ) -> tuple[MixedState, Float[Array, " n"]]:
        """Opens another random episode of the same variant, or the next one of its stream."""
        return self._draw(state.variant, state.episode + 1, key)

    def step(
        self, state: MixedState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[MixedState, Transition]:
        """Waits, or answers."""
        length, bits = self._size(state.variant)
        if self.task == "memory_chain":
            answer = state.context[state.query]
        else:
            answer = (2 * jnp.sum(state.context) > bits).astype(jnp.int32)
        transition = judge(self._observe(state), action, answer, state.time >= length)
        return state._replace(time=state.time + 1), transition

    def _size(self, variant: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
        length, bits = jnp.asarray(np.array(self.sizes, np.int32))[variant]
        return length, bits

    def _draw(
        self, variant: Int[Array, ""], episode: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[MixedState, Float[Array, " n"]]:
        """The draw of `Episodes` from the same key, or the episode of that number."""
        (_, bits), zero = self._size(variant), jnp.zeros((), jnp.int32)
        with_query = self.task == "memory_chain"
        there = jnp.arange(self._bits, dtype=jnp.int32) < bits
        times_key = key
        if not with_query:
            key, times_key = jax.random.split(key)
        if self.stream[0] is None:
            context_key, query_key = jax.random.split(key)
            drawn = jax.random.bits(context_key, (self._bits,), jnp.uint32) & 1
            query = jax.random.randint(query_key, (), 0, bits) if with_query else zero
            context, episode = drawn.astype(jnp.int32), zero
        else:
            episode = episode % self.stream[1]
            contexts, queries, row = _streams(self.sizes, *self.stream, with_query)
            place = jnp.asarray(row)[variant], episode
            context = jnp.asarray(contexts)[place].astype(jnp.int32)
            query = jnp.asarray(queries)[place].astype(jnp.int32)
        times = jnp.where(there, self._times(variant, times_key), _NEVER)
        state = MixedState(variant, jnp.where(there, context, 0), query, episode, times, zero)
        # The memory chain shows t = 0 twice, see `MemoryChain`.
        return state._replace(time=zero if with_query else zero + 1), self._observe(state)

    def _times(self, variant: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, " bits"]:
        if self.task == "memory_chain":
            return jnp.zeros(self._bits, jnp.int32)
        _, bits = self._size(variant)
        length = self.sizes[0][0]
        if self.schedule == "fresh":
            shuffled = jax.random.permutation(key, length)[: self._bits]
            there = jnp.arange(self._bits, dtype=jnp.int32) < bits
            return jnp.sort(jnp.where(there, shuffled, length)).astype(jnp.int32)
        table = np.full((len(self.sizes), self._bits), _NEVER, np.int32)
        for index, (_, count) in enumerate(self.sizes):
            table[index, :count] = fixed_schedule(length, count)
        return jnp.asarray(table)[variant]

    def _observe(self, state: MixedState) -> Float[Array, " n"]:
        length, _ = self._size(state.variant)
        asked = jnp.where(state.time == length - 1, state.query, 0)
        shown = jnp.where(state.times == state.time, 2 * state.context - 1, 0)
        numbers = jnp.concatenate([asked[None], shown]).astype(jnp.float32)
        table = np.zeros((len(self.sizes), max(n for n, _ in self.sizes) + 1), np.float32)
        for index, (count, _) in enumerate(self.sizes):
            table[index, : count + 1] = clock(count)
        now = jnp.asarray(table)[state.variant, state.time]
        return jnp.concatenate([now[None], numbers])


@lru_cache(maxsize=8)
def _streams(
    sizes: tuple[tuple[int, int], ...], seed: int, length: int, with_query: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contexts [kinds, episodes, bits] and queries [kinds, episodes] for every occurring number of
    bits, and the kind of each variant."""
    kinds = sorted({bits for _, bits in sizes})
    contexts = np.zeros((len(kinds), length, max(kinds)), np.int8)
    queries = np.zeros((len(kinds), length), np.int8)
    for index, bits in enumerate(kinds):
        stream = bsuite_stream(bits, seed, length, with_query)
        contexts[index, :, :bits], queries[index] = stream
    return contexts, queries, np.array([kinds.index(bits) for _, bits in sizes], np.int32)
