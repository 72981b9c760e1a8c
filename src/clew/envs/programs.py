"""A task's compiled functions on one vector of words, for stepping one environment from Python.

A compiled call with one array takes a third of the time of one with half a dozen, and most of that
time is call overhead.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Discrete
from jaxtyping import Array, Float, UInt32

from clew.envs.base import Environment, EnvState, Observation, Transition

Vector = UInt32[Array, " words"]


class Words:
    """A tree of arrays as a vector of uint32, and back.

    Args:
        tree: shapes and dtypes; float32, integers, booleans and random keys.
    """

    def __init__(self, tree: Any):
        self.leaves, self.tree = jax.tree.flatten(tree)
        self.plain = [_plain(leaf) for leaf in self.leaves]
        sizes = [int(np.prod(leaf.shape, dtype=int)) for leaf in self.plain]
        self.ends = np.cumsum([0, *sizes]).tolist()
        self.size: int = self.ends[-1]

    def pack(self, tree: Any) -> Vector:
        """The vector of a tree; within a compiled program."""
        parts = [_to_words(leaf).ravel() for leaf in jax.tree.leaves(tree)]
        return jnp.concatenate([jnp.zeros(0, jnp.uint32), *parts])

    def unpack(self, words: Vector) -> Any:
        """The tree of a vector; within a compiled program."""
        leaves = []
        for place, plain in enumerate(self.plain):
            part = words[self.ends[place] : self.ends[place + 1]].reshape(plain.shape)
            if plain.dtype.itemsize == 4:
                part = jax.lax.bitcast_convert_type(part, plain.dtype)
            part = part.astype(plain.dtype)
            is_key = plain is not self.leaves[place]
            leaves.append(jax.random.wrap_key_data(part) if is_key else part)
        return jax.tree.unflatten(self.tree, leaves)

    def read(self, words: np.ndarray) -> Any:
        """The tree of a vector, in NumPy arrays that may be changed."""
        leaves = []
        for place, plain in enumerate(self.plain):
            part = words[self.ends[place] : self.ends[place + 1]]
            part = part.view(plain.dtype) if plain.dtype.itemsize == 4 else part.astype(plain.dtype)
            leaves.append(part.reshape(plain.shape).copy())
        return jax.tree.unflatten(self.tree, leaves) if len(leaves) > 1 else leaves[0]


class TaskProgram:
    """The compiled functions of a task.

    Each takes a call, uint32 [words]: the action where there is one, the seed of the episode's
    noise and the time of the step. Each returns the words of the state, the observation and the
    numbers (reward, terminated, truncated, metrics). Opening an episode also returns all later
    observations [time] and numbers [actions, time] if actions do not change the observations.

    Args:
        task: the task, whose settings are static.
    """

    def __init__(self, task: Environment):
        self.task = task
        key = jax.eval_shape(lambda: jax.random.key(0))
        state, observation = jax.eval_shape(task.reset, key)
        self._state, self._observation = Words(state), Words(observation)
        self._counts = isinstance(task.observation_space, Discrete)
        outcomes = jax.eval_shape(task.outcomes, state, key)
        self.steps_ahead = 0 if outcomes is None else outcomes[1].reward.shape[1]
        begin, end = self._state.size, self._state.size + self._observation.size
        self._seen, self._said = slice(begin, end), slice(end, end + 3 + len(task.metric_names))
        self.reset, self.next_episode = jax.jit(self._reset), jax.jit(self._next_episode)
        self.reset_to, self.step = jax.jit(self._reset_to), jax.jit(self._step)
        self.next_in_trial = jax.jit(self._next_in_trial)
        self.state = jax.jit(self._state_at)
        self.action_mask = jax.jit(self._action_mask)

    def observation(self, words: np.ndarray) -> Any:
        """The observation in a function's result."""
        return self.read_observation(words[self._seen])

    def numbers(self, words: np.ndarray) -> Float[np.ndarray, " numbers"]:
        """Reward, terminated, truncated and metrics in a function's result."""
        return words[self._said].view(np.float32)

    def ahead(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Words of the observations [time, words] and numbers [actions, time, numbers] to come."""
        if not self.steps_ahead:
            return None
        rest, size = words[self._said.stop :], self.steps_ahead * self._observation.size
        numbers = rest[size:].view(np.float32)
        shape = (self.task.num_actions, self.steps_ahead, self._said.stop - self._said.start)
        return rest[:size].reshape(self.steps_ahead, -1), numbers.reshape(shape)

    def read_observation(self, words: np.ndarray) -> Any:
        """One of the observations to come; an integer for a Discrete space, as in Gymnasium."""
        found = self._observation.read(words)
        return np.int64(found) if self._counts else found

    def _reset(self, call: Vector) -> Vector:
        key = jax.random.key(call[-2])
        return self._opened(*self.task.reset(key), key)

    def _next_episode(self, call: Vector, words: Vector) -> Vector:
        key = jax.random.key(call[-2])
        state = self._state_at(words, call[-1])
        return self._opened(*self.task.next_episode(state, key), key)

    def _next_in_trial(self, call: Vector, first: Vector) -> Vector:
        key = jax.random.key(call[-2])
        seen = self._observation.unpack(first[self._seen])
        opened = self._state.unpack(first[: self._state.size]), seen
        return self._opened(*self.task.next_in_trial(opened, key), key)

    def _reset_to(self, call: Vector, drawn: dict[str, Any]) -> Vector:
        return self._opened(*self.task.reset_to(**drawn), jax.random.key(call[-2]))

    def _step(self, call: Vector, words: Vector) -> Vector:
        state = self._state.unpack(words[: self._state.size])
        shape = self.task.action_space.shape or ()
        action = Words(jax.ShapeDtypeStruct(shape, _action_type(self.task))).unpack(call[:-2])
        key = jax.random.wrap_key_data(call[-2:], impl="threefry2x32")  # needs no hashing
        state, transition = self.task.step(state, action, key)
        return self._packed(state, transition.observation, self._numbers(transition))

    def _opened(self, state: EnvState, observation: Observation, key: Array) -> Vector:
        nothing = jnp.zeros(self._said.stop - self._said.start, jnp.float32)
        now = self._packed(state, observation, nothing)
        outcomes = self.task.outcomes(state, key)
        if outcomes is None:
            return now
        _, transitions = outcomes
        seen = jax.tree.map(lambda each: each[0], transitions.observation)
        numbers = jax.vmap(jax.vmap(self._numbers))(transitions)
        ahead = jax.vmap(self._observation.pack)(seen).ravel(), _to_words(numbers).ravel()
        return jnp.concatenate([now, *ahead])

    def _state_at(self, words: Vector, time: Array) -> EnvState:
        """The state at this time; the words are those of the opening if all observations are
        known."""
        state = self._state.unpack(words[: self._state.size])
        outcomes = self.task.outcomes(state, jax.random.key(0))
        if outcomes is None:
            return state
        return jax.tree.map(
            lambda now, later: jnp.where(time == 0, now, later[0, jnp.maximum(time, 1) - 1]),
            state,
            outcomes[0],
        )

    def _action_mask(self, words: Vector, time: Array) -> Array | None:
        """The current action mask, like `_state_at`."""
        return self.task.action_mask(self._state_at(words, time))

    def _packed(self, state: EnvState, observation: Observation, numbers: Array) -> Vector:
        parts = self._state.pack(state), self._observation.pack(observation), _to_words(numbers)
        return jnp.concatenate(parts)

    def _numbers(self, transition: Transition) -> Float[Array, " numbers"]:
        metrics = [transition.metrics[name] for name in self.task.metric_names]
        said = [transition.reward, transition.terminated, transition.truncated, *metrics]
        return jnp.stack([jnp.asarray(number, jnp.float32) for number in said])


@functools.lru_cache(64)  # environments of equal settings share their programs
def program_of(task: Environment) -> TaskProgram:
    """A task's compiled functions; each is compiled by its first call."""
    return TaskProgram(task)


def words_of_call(task: Environment, action: Any, seed: int, time: int) -> UInt32[np.ndarray, " n"]:
    """The call that a `TaskProgram`'s step takes."""
    if task.num_actions:
        return np.array((action, seed, time), np.uint32)
    plain = np.asarray(action, _action_type(task)).ravel().view(np.uint32)
    return np.concatenate([plain, np.array((seed, time), np.uint32)])


def _action_type(task: Environment) -> Any:
    kind = np.dtype(task.action_space.dtype).kind
    return np.float32 if kind == "f" else np.int32


def _plain(leaf: Any) -> Any:
    """Shape and dtype of a leaf; those of its data if it is a random key."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.eval_shape(jax.random.key_data, leaf)
    return leaf


def without_key(leaf: Array) -> Array:
    """The array, or the data of a random key, which NumPy cannot hold."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _to_words(leaf: Array) -> UInt32[Array, "..."]:
    leaf = without_key(leaf)
    if leaf.dtype.itemsize == 4:
        return jax.lax.bitcast_convert_type(leaf, jnp.uint32)
    return leaf.astype(jnp.uint32)
