"""Makkink's distributed memory: bits appear one by one, and the answer is their majority."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from clew.envs.base import Transition
from clew.envs.memory_chain import check_chain
from clew.envs.pictures import distributed_picture
from clew.envs.recall import (
    FIRST_BIT,
    STREAM_LENGTH,
    Draw,
    Episodes,
    SizedRecall,
    draw_bits,
    forced_context,
    integers,
    judge,
    number_bits,
    shown_time,
)
from clew.errors import UserError, require_choice

SCHEDULES = ("fixed", "fresh")


class DistributedMemoryState(NamedTuple):
    """The state of an episode."""

    drawn: Draw
    times: Int[Array, " bits"]
    """When each bit is shown, in order."""
    time: Int[Array, ""]
    """The time that the next observation shows."""


Opened = tuple[DistributedMemoryState, Float[Array, " n"]]
"""State and first observation of an episode."""


class DistributedMemory(SizedRecall):
    """Watch bits appear one by one and say at the end whether most of them were 1.

    With N = memory_length and k = num_bits, the observation of time t = 0 to N is

        clock  1 number    1 - t/N
        query  1 number    0: left over from bsuite's memory chain, on which the task is built
        bits   k numbers   bit i, as -1 or 1, in place i at its own time times[i]; else 0

    with times in order. Each observation is shown once. The answer is the action at t = N-1, number
    N of the episode; the final observation is t = N.

    Actions: 0 and 1. The last one is the answer: it earns +1 if it is the majority of the bits,
    otherwise -1; any other integer is a wrong answer. Earlier actions do nothing and earn 0.

    Metrics: "success" (right answer), 0 or 1.

    Args:
        memory_length: N, at least `num_bits`.
        num_bits: k, odd.
        schedule: "fixed": the same times in every episode, the published ones (`fixed_schedule`).
            "fresh": random times in each episode. Where times include N-1, the last bit is seen
            while answering: `clew.lab.studies.makkink.floors` has what that alone earns.
        stream_seed: None draws new bits for every episode. A number replays the bits that the
            published code draws with that seed, in order, from the first episode on, in every
            environment and for any keys; every published run has 0.
        stream_length: episodes after which the fixed stream repeats.

    Raises:
        UserError: impossible sizes, an unknown schedule, or an invalid seed.

    Source: Makkink (2021), section 3.1, as in the published code: the text does not say that the
    schedule never changes, nor that the bits are the same in every run. Deviation: the observation
    is flat, [k+2] instead of [1, k+2]; "fresh".
    """

    memory_length: int = eqx.field(static=True)
    schedule: str = eqx.field(static=True)
    episodes: Episodes
    observation_size: int = eqx.field(static=True)

    def __init__(
        self,
        memory_length: int = 10,
        num_bits: int = 5,
        schedule: str = "fixed",
        stream_seed: int | None = None,
        stream_length: int = STREAM_LENGTH,
    ):
        check_distributed(memory_length, num_bits, schedule)
        self.memory_length = memory_length
        self.schedule = schedule
        self.episodes = Episodes(num_bits, False, stream_seed, stream_length)
        self.observation_size = FIRST_BIT + num_bits

    @property
    def longest(self) -> int:
        return self.memory_length

    def reset(self, key: Key[Array, ""]) -> Opened:
        draw_key, times_key = jax.random.split(key)
        return self._open(self.episodes.first(draw_key), self._times(times_key))

    def next_episode(self, state: DistributedMemoryState, key: Key[Array, ""]) -> Opened:
        draw_key, times_key = jax.random.split(key)
        drawn = self.episodes.after(state.drawn.episode, draw_key)
        return self._open(drawn, self._times(times_key))

    def reset_at(
        self,
        episode: Int[Array, ""] | int,
        times: Int[Array, " bits"] | Sequence[int] | None = None,
    ) -> Opened:
        """Opens an episode of the fixed stream by its number, from 0; `times` as in `reset_to`.

        Raises:
            UserError: without `stream_seed`, or for a wrong number of times.
        """
        return self._open(self.episodes.at(episode), self._given(times))

    def reset_to(
        self,
        context: Int[Array, " bits"] | Sequence[int],
        times: Int[Array, " bits"] | Sequence[int] | None = None,
    ) -> Opened:
        """Opens an episode with the given bits, 0 or 1, shown at the given times.

        Args:
            context: the bits.
            times: different ones from 0 to N-1, in order; None: the published schedule.

        Raises:
            UserError: a wrong number of bits or times.
        """
        return self._open(self.episodes.forced(context), self._given(times))

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        context, _ = draw_bits(self.episodes, rng, number)
        times = np.array(fixed_schedule(self.memory_length, self.episodes.num_bits), np.int32)
        if self.schedule == "fresh":
            drawn = rng.choice(self.memory_length, self.episodes.num_bits, replace=False)
            times = np.sort(drawn).astype(np.int32)
        return {"context": context, "times": times}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        context, times = forced_context(given.get("context"), drawn["context"]), drawn["times"]
        if "times" in given:
            if self.schedule != "fresh":
                raise UserError(
                    f"times can be forced only if schedule is 'fresh', got {self.schedule!r}"
                )
            times = forced_times(given["times"], len(context), self.memory_length)
        return {"context": context, "times": times}

    def step(
        self, state: DistributedMemoryState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[DistributedMemoryState, Transition]:
        majority = (jnp.sum(2 * state.drawn.context - 1) > 0).astype(jnp.int32)
        transition = judge(self._observe(state), action, majority, state.time >= self.memory_length)
        return state._replace(time=state.time + 1), transition

    def remembered(self, state: DistributedMemoryState) -> dict[str, Int[Array, ""]]:
        bits = state.drawn.context
        majority = (2 * jnp.sum(bits) > len(bits)).astype(jnp.int32)
        return {"majority": majority} | (number_bits(bits) if len(bits) > 1 else {})

    def render_image(self, state: DistributedMemoryState, observation: np.ndarray) -> np.ndarray:
        bits = (np.asarray(state.drawn.context), np.asarray(state.times))
        return distributed_picture(*bits, shown_time(state), self.memory_length, observation)

    def _open(self, drawn: Draw, times: Int[Array, " bits"]) -> Opened:
        state = DistributedMemoryState(drawn, times, jnp.zeros((), jnp.int32))
        return state._replace(time=state.time + 1), self._observe(state)

    def _observe(self, state: DistributedMemoryState) -> Float[Array, " n"]:
        bits = jnp.where(state.times == state.time, 2 * state.drawn.context - 1, 0)
        return self.shown(state.time, jnp.zeros((), jnp.int32), bits)

    def _times(self, key: Key[Array, ""]) -> Int[Array, " bits"]:
        if self.schedule == "fixed":
            return self._given(None)
        shuffled = jax.random.permutation(key, self.memory_length)
        return jnp.sort(shuffled[: self.episodes.num_bits]).astype(jnp.int32)

    def _given(self, times: Int[Array, " bits"] | Sequence[int] | None) -> Int[Array, " bits"]:
        num_bits = self.episodes.num_bits
        if times is None:
            times = fixed_schedule(self.memory_length, num_bits)
        found = jnp.asarray(times, jnp.int32)
        if found.shape != (num_bits,):
            raise UserError(f"times must be num_bits {num_bits} numbers, got shape {found.shape}")
        return found


def fixed_schedule(memory_length: int, num_bits: int) -> tuple[int, ...]:
    """The times at which the schedule "fixed" shows the bits, in every episode of every run.

        times = sorted(random.Random(0).sample(range(memory_length), num_bits))

    The published code seeds Python's global generator for it; this function leaves that one alone.

    Source: the code published with Makkink (2021).
    """
    return tuple(sorted(random.Random(0).sample(range(memory_length), num_bits)))


def forced_times(given: Any, num_bits: int, memory_length: int) -> np.ndarray:
    """The given times; raises `UserError` unless they are valid, in order, all different, and as
    many as there are bits."""
    times = integers(given)
    different = times is not None and times == sorted(set(times)) and len(times) == num_bits
    if times is None or not different or times[0] < 0 or times[-1] >= memory_length:
        raise UserError(
            f"times must be num_bits {num_bits} different integers from 0 to "
            f"{memory_length - 1}, in order, got {given!r}"
        )
    return np.array(times, np.int32)


def check_distributed(memory_length: Any, num_bits: Any, schedule: Any) -> None:
    """Refuses an unknown schedule and impossible sizes: an even number of bits may have no
    majority, and more bits than times cannot be shown one by one."""
    check_chain(memory_length, num_bits)
    if num_bits % 2 == 0:
        raise UserError(
            f"num_bits must be odd, so that there is a majority, got {num_bits}; "
            f"nearest: {num_bits - 1}, {num_bits + 1}"
        )
    if num_bits > memory_length:
        raise UserError(
            f"num_bits must be at most memory_length {memory_length}, because each bit is shown at "
            f"its own time, got {num_bits}"
        )
    require_choice("schedule", schedule, SCHEDULES)
