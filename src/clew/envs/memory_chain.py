"""bsuite's memory chain: see some bits, wait, and report the one that is asked for."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import Transition
from clew.envs.pictures import chain_picture
from clew.envs.recall import (
    FIRST_BIT,
    STREAM_LENGTH,
    Draw,
    Episodes,
    SizedRecall,
    draw_bits,
    forced_context,
    forced_query,
    judge,
    number_bits,
    shown_time,
)
from clew.errors import LARGEST_SIZE, LONGEST_EPISODE, require_at_least


class MemoryChainState(NamedTuple):
    """The state of an episode."""

    drawn: Draw
    time: Int[Array, ""]
    """The time that the next observation shows."""


Opened = tuple[MemoryChainState, Float[Array, " n"]]
"""State and first observation of an episode."""


class MemoryChain(SizedRecall):
    """Remember bits seen at the beginning and report one of them at the end.

    With N = memory_length and k = num_bits, the observation of time t = 0 to N is

    ```text
    clock    1 number    1 - t/N
    query    1 number    which bit is asked for, the raw index 0 to k-1, at t = N-1; else 0
    context  k numbers   the bits as -1 and 1 at t = 0; else 0
    ```

    Time starts to count one step late: the first observation (t = 0) is shown a second time after
    the first action. Then come t = 1, 2, ...; the answer is the action at t = N-1, number N+1 of
    the episode, and the final observation is t = N. For N = 1 nothing has to be remembered.

    Actions: 0 and 1. The last one is the answer: it earns +1 if it equals the bit asked for,
    otherwise -1; any other integer is a wrong answer. Earlier actions do nothing and earn 0.

    Metrics: "success" (right answer), 0 or 1.

    Args:
        memory_length: N, at least 1.
        num_bits: k, at least 1.
        stream_seed: None draws new episodes. A number replays the episodes that bsuite draws with
            that seed, in order, from the first one on, in every environment and for any keys;
            bsuite's own default, and that of every published run, is 0.
        stream_length: episodes after which the fixed stream repeats.

    Raises:
        UserError: a size below 1, or an invalid seed.

    Source: Osband et al. (2020), Behaviour Suite for Reinforcement Learning, "memory_len" (k = 1)
    and "memory_size" (N = 2), as in its code: the text mentions neither the repeated observation
    nor the raw index. Deviation: the observation is flat, [k+2] instead of [1, k+2].
    """

    memory_length: int = eqx.field(static=True)
    episodes: Episodes
    observation_size: int = eqx.field(static=True)

    def __init__(
        self,
        memory_length: int = 20,
        num_bits: int = 1,
        stream_seed: int | None = None,
        stream_length: int = STREAM_LENGTH,
    ):
        check_chain(memory_length, num_bits)
        self.memory_length = memory_length
        self.episodes = Episodes(num_bits, True, stream_seed, stream_length)
        self.observation_size = FIRST_BIT + num_bits

    @property
    def longest(self) -> int:
        return self.memory_length + 1

    def reset(self, key: Key[Array, ""]) -> Opened:
        return self._open(self.episodes.first(key))

    def next_episode(self, state: MemoryChainState, key: Key[Array, ""]) -> Opened:
        return self._open(self.episodes.after(state.drawn.episode, key))

    def reset_at(self, episode: Int[Array, ""] | int) -> Opened:
        """Opens an episode of the fixed stream by its number, from 0.

        Raises:
            UserError: without `stream_seed`.
        """
        return self._open(self.episodes.at(episode))

    def reset_to(
        self, context: Int[Array, " bits"] | Sequence[int], query: Int[Array, ""] | int = 0
    ) -> Opened:
        """Opens an episode with the given bits, 0 or 1, and the index of the one asked for.

        Raises:
            UserError: a wrong number of bits.
        """
        return self._open(self.episodes.forced(context, query))

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        context, query = draw_bits(self.episodes, rng, number)
        return {"context": context, "query": query}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        context = forced_context(given.get("context"), drawn["context"])
        query = forced_query(given.get("query"), drawn["query"], len(context))
        return {"context": context, "query": query}

    def step(
        self, state: MemoryChainState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[MemoryChainState, Transition]:
        answer = state.drawn.context[state.drawn.query]
        transition = judge(self._observe(state), action, answer, state.time >= self.memory_length)
        return state._replace(time=state.time + 1), transition

    def remembered(self, state: MemoryChainState) -> dict[str, Int[Array, ""]]:
        bits = state.drawn.context
        asked = {"bit asked for": bits[state.drawn.query]}
        return asked | (number_bits(bits) if len(bits) > 1 else {})

    def render_image(self, state: MemoryChainState, observation: np.ndarray) -> np.ndarray:
        context, query = np.asarray(state.drawn.context), int(state.drawn.query)
        time = shown_time(state)
        return chain_picture(context, query, time, self.memory_length, observation)

    def _open(self, drawn: Draw) -> Opened:
        # Showing t = 0 leaves time at 0, so the first step shows it again, as in bsuite.
        state = MemoryChainState(drawn, jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def _observe(self, state: MemoryChainState) -> Float[Array, " n"]:
        (context, query, _), time = state
        asked = jnp.where(time == self.memory_length - 1, query, 0)
        shown = jnp.where(time == 0, 2 * context - 1, 0)
        return self.shown(time, asked, shown)


def check_chain(memory_length: Any, num_bits: Any) -> None:
    """Refuses impossible sizes."""
    require_at_least("memory_length", memory_length, 1, LONGEST_EPISODE)
    require_at_least("num_bits", num_bits, 1, LARGEST_SIZE)
