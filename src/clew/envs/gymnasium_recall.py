"""The memory chain and the distributed memory for every library of Gymnasium environments.

`clew.envs.gymnasium_api` registers them as `clew/MemoryChain-v0` and `clew/DistributedMemory-v0`.
"""

import abc
import copy
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from clew.envs.distributed_memory import check_distributed, fixed_schedule
from clew.envs.gymnasium_checks import (
    RENDER_MODES,
    forced_context,
    forced_query,
    forced_times,
    known_options,
    require_action,
    require_render_mode,
    require_running,
)
from clew.envs.memory_chain import check_chain
from clew.envs.recall import (
    FIRST_BIT,
    RIGHT_REWARD,
    STREAM_LENGTH,
    WRONG_REWARD,
    bsuite_stream,
    check_stream,
    clock,
    recall_line,
)
from clew.errors import UserError


class Episode(NamedTuple):
    """All that one episode consists of."""

    observations: np.ndarray
    """[N+1, k+2]: what is seen at each time t = 0 to N."""
    answer: int
    info: dict[str, Any]
    """What the agent must not see."""


class RecallEnv(gymnasium.Env[np.ndarray, np.int64], abc.ABC):
    """What both tasks share: episodes are laid out when they open, and then shown line by line."""

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 10}
    first_step_shows: int
    """The time t whose observation the first step returns."""

    def __init__(
        self,
        memory_length: int,
        num_bits: int,
        stream_seed: int | None,
        stream_length: int,
        render_mode: str | None,
    ):
        check_stream(stream_seed, stream_length)
        require_render_mode(render_mode)
        self.memory_length = memory_length
        self.num_bits = num_bits
        self.stream_seed = stream_seed
        self.stream_length = stream_length
        self.render_mode = render_mode
        low, high = np.zeros((2, FIRST_BIT + num_bits), np.float32)
        low[FIRST_BIT:] = -1
        high[:] = 1
        high[1] = max(1, num_bits - 1)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._episode: Episode
        self._shown = self._time = 0
        self._stream_episode = 0
        self._running = False

    @abc.abstractmethod
    def _open(self, options: dict[str, Any] | None) -> Episode:
        """Draws an episode and puts in its place what the options force."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Opens an episode; a seed also leads a fixed stream back to its first one."""
        super().reset(seed=seed)
        if seed is not None:
            self._stream_episode = 0
        self._episode = self._open(options)
        self._stream_episode += 1
        self._shown, self._time = 0, self.first_step_shows
        self._running = True
        return self._observe(), self._info(False)

    def step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Waits, or answers."""
        require_running(self._running)
        action = require_action(self, action, "the bit that is answered")
        self._shown, self._time = self._time, self._time + 1
        terminated = self._shown == self.memory_length
        success = terminated and action == self._episode.answer
        reward = 0.0
        if terminated:
            reward = RIGHT_REWARD if success else WRONG_REWARD
        self._running = not terminated
        return self._observe(), reward, terminated, False, self._info(success)

    def render(self) -> str | None:
        """What is shown as a line of text, a dot for every bit that is not; None without a mode."""
        if self.render_mode is None:
            return None
        query, *bits = self._observe()[1:]
        return recall_line(bits, query, self._shown, self.memory_length)

    def _draw(self, with_query: bool) -> tuple[np.ndarray, int]:
        """Bits and query, of the fixed stream or afresh."""
        if self.stream_seed is not None:
            settings = (self.num_bits, self.stream_seed, self.stream_length, with_query)
            stream, episode = bsuite_stream(*settings), self._stream_episode % self.stream_length
            return stream.contexts[episode], int(stream.queries[episode])
        context = self.np_random.integers(2, size=self.num_bits, dtype=np.int32)
        return context, int(self.np_random.integers(self.num_bits)) if with_query else 0

    def _blank(self) -> np.ndarray:
        """The observations [N+1, k+2] with nothing but the clock."""
        observations = np.zeros((self.memory_length + 1, FIRST_BIT + self.num_bits), np.float32)
        observations[:, 0] = clock(self.memory_length)
        return observations

    def _observe(self) -> np.ndarray:
        return self._episode.observations[self._shown].copy()

    def _info(self, success: bool) -> dict[str, Any]:
        return {"success": success, **copy.deepcopy(self._episode.info)}


class MemoryChainEnv(RecallEnv):
    """`clew.envs.MemoryChain`, its rules to the letter, in NumPy.

    `info` has "success" (the episode ended with the right answer), and "context" and "query",
    which the agent must not see.

    `reset(options={"context": [0 or 1, ...], "query": q})` forces either or both. What is not
    forced is drawn, or played from the fixed stream, in which a forced episode counts too.

    Args:
        memory_length: as that of `clew.envs.MemoryChain`, like the next three.
        num_bits: bits of the context.
        stream_seed: which fixed stream of episodes to play; None draws fresh ones.
        stream_length: episodes of the stream before it starts again.
        render_mode: None, or "ansi" for a line of text.

    Raises:
        UserError: impossible settings, options or actions.
        gymnasium.error.ResetNeeded: a step before the first reset or after an episode's end.
    """

    first_step_shows = 0

    def __init__(
        self,
        memory_length: int = 20,
        num_bits: int = 1,
        stream_seed: int | None = None,
        stream_length: int = STREAM_LENGTH,
        render_mode: str | None = None,
    ):
        check_chain(memory_length, num_bits)
        super().__init__(memory_length, num_bits, stream_seed, stream_length, render_mode)

    def _open(self, options: dict[str, Any] | None) -> Episode:
        given = known_options(options, "memory chain", ["context", "query"])
        context, query = self._draw(with_query=True)
        context = forced_context(given.get("context"), context)
        query = forced_query(given.get("query"), query, self.num_bits)
        observations = self._blank()
        observations[0, FIRST_BIT:] = 2 * context - 1
        observations[self.memory_length - 1, 1] = query
        return Episode(observations, int(context[query]), {"context": context, "query": query})


class DistributedMemoryEnv(RecallEnv):
    """`clew.envs.DistributedMemory`, its rules to the letter, in NumPy.

    `info` has "success" (the episode ended with the right answer), and "context" and "times",
    which the agent must not see.

    `reset(options={"context": [0 or 1, ...], "times": [t, ...]})` forces either or both; times
    only if the schedule is "fresh". What is not forced is drawn, or played from the fixed stream,
    in which a forced episode counts too.

    Args:
        memory_length: as that of `clew.envs.DistributedMemory`, like the next four.
        num_bits: bits of the context.
        schedule: when the bits are shown: "fixed", always at the same steps, or "fresh", drawn
            for each episode.
        stream_seed: which fixed stream of episodes to play; None draws fresh ones.
        stream_length: episodes of the stream before it starts again.
        render_mode: None, or "ansi" for a line of text.

    Raises:
        UserError: impossible settings, options or actions.
        gymnasium.error.ResetNeeded: a step before the first reset or after an episode's end.
    """

    first_step_shows = 1

    def __init__(
        self,
        memory_length: int = 10,
        num_bits: int = 5,
        schedule: str = "fixed",
        stream_seed: int | None = None,
        stream_length: int = STREAM_LENGTH,
        render_mode: str | None = None,
    ):
        check_distributed(memory_length, num_bits, schedule)
        super().__init__(memory_length, num_bits, stream_seed, stream_length, render_mode)
        self.schedule = schedule

    def _open(self, options: dict[str, Any] | None) -> Episode:
        given = known_options(options, "distributed memory", ["context", "times"])
        context, _ = self._draw(with_query=False)
        context = forced_context(given.get("context"), context)
        times = np.array(fixed_schedule(self.memory_length, self.num_bits))
        if self.schedule == "fresh":
            times = self.np_random.choice(self.memory_length, self.num_bits, replace=False)
            times = forced_times(given.get("times"), np.sort(times), self.memory_length)
        elif given.get("times") is not None:
            raise UserError("times can be forced only if schedule is 'fresh'; here it is 'fixed'")
        observations = self._blank()
        observations[times, FIRST_BIT + np.arange(self.num_bits)] = 2 * context - 1
        answer = int((2 * context - 1).sum() > 0)
        return Episode(observations, answer, {"context": context, "times": times})
