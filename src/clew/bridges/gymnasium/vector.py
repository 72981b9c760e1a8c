"""Sources of steps of several environments, among them third-party vector environments."""

import abc
import contextlib
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from clew.bridges.gymnasium.faults import AnswerError, EnvironmentFault, EnvironmentHung
from clew.bridges.gymnasium.masks import ActionMasks
from clew.bridges.gymnasium.processes import CLOSE_SECONDS, close_quietly, end_processes, is_ctrl_c
from clew.bridges.gymnasium.spaces import (
    Array,
    Arrays,
    ObservationAdapter,
    adapt_action,
    adapt_observation,
    exact_types,
    lost,
    numbers_of_info,
)
from clew.bridges.gymnasium.trials import ENDED
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError, last_line, own_traceback

WORKING = "NEXT_STEP and SAME_STEP work"


class Answer(NamedTuple):
    """The results of B environments for a reset or for actions, every field [B]."""

    observations: Arrays
    """Adapted observations."""
    masks: Array | None
    """Action masks [B, n], if they are in `info`."""
    rewards: Array
    terminated: Array
    truncated: Array
    trial_goes_on: Array | None = None
    """Which environments ended an episode of a trial and opened the next one."""
    finals: Arrays | None = None
    """If this step opens the next episode: adapted observations, whose rows are the final ones for
    truncated environments; None if none was truncated."""
    final_masks: Array | None = None
    """Action masks of these, if they are in `info`; all ones for missing ones."""
    numbers: Sequence[dict[str, float]] = ()
    """For every environment whose episode ended, the numbers in its last `info`; else empty."""


class VectorSource(abc.ABC):
    """B environments that are stepped together, by any means."""

    num_envs: int
    name: str
    """Its name in errors."""
    observations: ObservationAdapter
    own_action_space: spaces.Space
    """The environments' own space of actions."""
    same_step: bool
    """Whether the step that ends an episode opens the next one; else the step after it does."""

    @abc.abstractmethod
    def reset(self, seed: int | None, timeout: float | None) -> Answer:
        """Opens an episode in every environment.

        Args:
            seed: every environment gets its own, derived from this; None continues their streams.
            timeout: seconds to wait for processes, None for no limit.

        Raises:
            EnvironmentFault: an environment or its process failed.
            EnvironmentHung: no answer in time.
        """

    @abc.abstractmethod
    def send(self, actions: Array) -> None:
        """Sends actions [B, ...] to processes; without them, keeps the actions."""

    @abc.abstractmethod
    def wait(self, timeout: float | None) -> Answer:
        """The answer to `send`; raises like `reset`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the environments and ends their processes, within a few seconds at most."""

    def show_progress(self, progress: Array) -> None:  # noqa: B027  most sources have none
        """Makes the source write the index of the environment that it is stepping to an int32 [1].

        Only sources that step environments one by one in this process do so.
        """


def seeds_of(seed: int, num_envs: int) -> list[int]:
    """A seed for each environment.

    As in Gymnasium, environment i with seed s has the seed of environment 0 with seed s + i.
    """
    return np.random.SeedSequence(seed).generate_state(num_envs).tolist()


class OtherVector(VectorSource):
    """A third-party vector environment, with its errors as `EnvironmentFault`.

    Args:
        name: its name in errors.
        wrappers: of the stream.
        lengths: steps [B] of the running episodes, for errors.

    Raises:
        UserError: no autoreset, an unsupported space, or wrappers for single environments.
    """

    def __init__(self, vector: VectorEnv, name: str, wrappers: WrapperConfig, lengths: Array):
        self.vector, self.name, self.num_envs = vector, name, vector.num_envs
        self.same_step = autoreset_mode(vector, name) is AutoresetMode.SAME_STEP
        self.observations = adapt_observation(vector.single_observation_space, name)
        self.own_action_space = vector.single_action_space
        # The environments may already have trials, as `info` says.
        replace(wrappers, trial_episodes=1, trial_memory=True).require_no_single(name)
        masks = ActionMasks.of(wrappers, adapt_action(self.own_action_space, name).space)
        self._masks = masks if masks is not None and masks.in_info else None
        self._metrics = wrappers.metrics
        self._lengths, self._hung = lengths, False
        self._actions: Any = None

    def reset(self, seed: int | None, timeout: float | None) -> Answer:
        vector: Any = self.vector
        seeds: Any = seed
        if seed is not None and isinstance(vector.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            seeds = seeds_of(seed, self.num_envs)
        with self._faults_of("reset", timeout):
            if isinstance(vector, AsyncVectorEnv):
                vector.reset_async(seed=seeds)
                observations, info = vector.reset_wait(timeout)
            else:
                observations, info = vector.reset(seed=seeds)
        never = np.zeros(self.num_envs, np.bool_)
        rewards = np.zeros(self.num_envs, np.float32)
        adapted = self._adapted(observations)
        return Answer(adapted, self._masks_of(info, never), rewards, never, never)

    def send(self, actions: Array) -> None:
        self._actions = actions
        if isinstance(self.vector, AsyncVectorEnv):
            with self._faults_of("step", None):
                self.vector.step_async(actions)

    def wait(self, timeout: float | None) -> Answer:
        with self._faults_of("step", timeout):
            if isinstance(self.vector, AsyncVectorEnv):
                answer = self.vector.step_wait(timeout)
            else:
                answer: Any = self.vector.step(self._actions)
        observations, rewards, terminated, truncated, info = answer
        adapted, rewards = self._adapted(observations), self._of_each("reward", rewards)
        terminated = self._flags("terminated", terminated)
        truncated = self._flags("truncated", truncated)
        cut, finals, final_masks = truncated & ~terminated, None, None
        if self.same_step and cut.any():
            final_masks = self._masks_of(_final_infos(info), np.ones_like(cut))
            finals = final_observations(info, cut, adapted, self.observations, self.name)
        closing = terminated | truncated if not self.same_step else np.zeros_like(cut)
        masks, goes_on = self._masks_of(info, closing), None
        if isinstance(info, Mapping):
            goes_on = np.asarray(info[ENDED], np.bool_) if ENDED in info else None
        elif any(ENDED in row for row in info):
            goes_on = np.array([bool(row.get(ENDED, False)) for row in info])
        numbers = self._numbers(info, terminated | truncated)
        return Answer(
            adapted, masks, rewards, terminated, truncated, goes_on, finals, final_masks, numbers
        )

    def close(self) -> None:
        inner = self.vector.unwrapped
        if isinstance(inner, AsyncVectorEnv) and not inner.closed:
            # Gymnasium's own `close` waits forever for a worker that hangs.
            patience = 0.0 if self._hung else CLOSE_SECONDS
            end_processes(inner.processes, inner.parent_pipes, patience, ("close", None))
            inner.error_queue.close()
            inner.error_queue.cancel_join_thread()
            inner.closed = True
        close_quietly(self.vector, 2 * CLOSE_SECONDS)  # processes of other kinds take their time

    def _adapted(self, observations: Any) -> Arrays:
        for leaf in self.observations.leaves:
            with self._named():
                value, exact = leaf.pick(observations), exact_types(leaf.dtype)
            self._of_each(leaf.field, value, leaf.raw_shape)
            if exact and value.dtype.char not in exact and value.dtype != object:
                wrong = lost(value, leaf.dtype)
                self._require_none(leaf.field, wrong, value, f"values of {leaf.space}")
        return self.observations(observations)

    def _flags(self, name: str, values: Any) -> Array:
        flags = self._of_each(name, values)
        if flags.dtype != np.bool_:
            wrong = (flags != 0) & (flags != 1)
            self._require_none(name, wrong, flags, "True or False")
        return flags.astype(np.bool_, copy=False)

    def _of_each(self, field: str, values: Any, shape: tuple[int, ...] = ()) -> Array:
        """A batch of values of this shape, one for each environment."""
        array, expected = np.asarray(values), (self.num_envs, *shape)
        if array.shape != expected:
            found = f"{field} has shape {list(array.shape)}, expected {list(expected)}"
            raise EnvironmentFault(f"{self.name}: {found}", env=self.name, field=field)
        return array

    def _require_none(self, field: str, wrong: Array, values: Array, expected: str) -> None:
        require_none(self.name, field, expected, wrong, values, self._lengths)

    def _masks_of(self, info: Any, ended: Array) -> Array | None:
        if self._masks is None:
            return None
        with self._named():
            return self._masks.of_infos(info, self.num_envs, ended)

    def _numbers(self, info: Any, ended: Array) -> list[dict[str, float]]:
        info = _final_infos(info) if self.same_step else info
        found: list[dict[str, float]] = [{} for _ in ended]
        for i in np.flatnonzero(ended).tolist():
            with self._named(i):
                found[i] = numbers_of_info(_info_of(info, i), self._metrics)
        return found

    @contextlib.contextmanager
    def _named(self, index: int | None = None) -> Iterator[None]:
        """Turns an invalid answer, of all or of one environment, into an `EnvironmentFault`."""
        try:
            yield
        except AnswerError as error:
            which = "" if index is None else f"environment {index}: "
            text, field = f"{self.name}: {which}{error}", error.field
            raise EnvironmentFault(text, env=self.name, index=index, field=field) from error

    @contextlib.contextmanager
    def _faults_of(self, call: str, timeout: float | None) -> Iterator[None]:
        """Turns every failure of a call, "reset" or "step", into an `EnvironmentFault`."""
        try:
            yield
        except EnvironmentFault:
            raise
        except multiprocessing.TimeoutError as error:
            self._hung = True
            pipes = enumerate(self.vector.unwrapped.parent_pipes)  # pyright: ignore
            late = [i for i, pipe in pipes if pipe is None or not pipe.poll(0)]
            raise EnvironmentHung.after(timeout, self.name, late) from error
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            index, text = _dead_worker(self.vector), last_line(error)
            which = "an environment" if index is None else f"environment {index}"
            fault = EnvironmentFault(
                f"{self.name}: {which} raised in {call}: {text}",
                env=self.name,
                index=index,
                field=call,
                cause=f"{call}: {text}",
                lost=True,
            )
            if trace := own_traceback(error):
                fault.add_note(trace)
            raise fault from error


def autoreset_mode(vector: VectorEnv, name: str) -> AutoresetMode:
    """The way in which a vector environment opens the next episode.

    Raises:
        UserError: it is not declared, or is left to the caller.
    """
    declared = vector.metadata.get("autoreset_mode")
    try:
        mode = AutoresetMode(getattr(declared, "value", declared))
    except ValueError as error:
        raise UserError(
            f"{name}: metadata['autoreset_mode'] of the vector environment must be a "
            f"gymnasium.vector.AutoresetMode, of which {WORKING}; it is {declared!r}"
        ) from error
    if mode is AutoresetMode.DISABLED:
        raise UserError(f"{name}: its autoreset mode is DISABLED; {WORKING}")
    return mode


def require_none(
    name: str, field: str, expected: str, wrong: Array, values: Array, lengths: Array
) -> None:
    """Raises `EnvironmentFault` for the first environment with a wrong value among [B, ...].

    `lengths` [B] are the steps of the running episodes; `expected` may be empty.
    """
    rows = wrong.reshape(len(wrong), -1)
    if not rows.any():
        return
    index = int(np.argmax(rows.any(axis=1)))
    value, step = values.reshape(len(wrong), -1)[index][rows[index]][0], int(lengths[index])
    raise EnvironmentFault(
        f"{name}: environment {index} gave {value} in its {field}, {step} steps into its episode"
        + (f"; expected {expected}" if expected else ""),
        env=name,
        index=index,
        episode_step=step,
        field=field,
    )


def final_observations(
    info: Any, rows: Array, like: Arrays, adapter: ObservationAdapter, name: str
) -> Arrays:
    """The final observations of the environments in a mask [B], adapted; other rows are 0.

    `info["final_obs"]` (before Gymnasium 1.1, `"final_observation"`) depends on the vector
    environment: an array of objects, with one observation or None for each environment
    (Gymnasium's own); one batch, or a dict of batches for a Dict space (compiled ones); or `info`
    is a list of dicts (`DictInfoToList`).

    Raises:
        UserError: it is missing for an environment that was truncated.
    """
    out = adapter.named([np.zeros_like(array) for array in adapter.arrays(like)])
    for i in np.flatnonzero(rows):
        observation = _final_of(info, int(i))
        if observation is None:
            raise UserError(
                f"{name}: environment {i} was truncated and reset in the same step, but info has "
                'no "final_obs" of it, whose value completes the return'
            )
        seen = adapter.arrays(adapter(observation))
        for array, value in zip(adapter.arrays(out), seen, strict=True):
            array[i] = value
    return out


def _final_infos(info: Any) -> Any:
    """The last `info` of episodes that ended, if this step has opened the next ones."""
    if isinstance(info, Mapping):
        return info.get("final_info", {})
    return [row.get("final_info", {}) for row in info]


def _final_of(info: Any, i: int) -> Any:
    if isinstance(info, Sequence):
        info, i = info[i], -1
    found = info.get("final_obs", info.get("final_observation"))
    return found if found is None or i < 0 else _row(found, i)


def _info_of(info: Any, i: int) -> Any:
    """The `info` of one environment; in a dict of batches "_KEY" says who has the key."""
    if isinstance(info, Sequence):
        return info[i]
    return {
        key: _row(values, i)
        for key, values in info.items()
        if isinstance(values, np.ndarray) and values.ndim
        if f"_{key}" not in info or info[f"_{key}"][i]
    }


def _row(batch: Any, i: int) -> Any:
    if isinstance(batch, dict):
        return {key: _row(value, i) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_row(value, i) for value in batch)
    return batch[i]


class FirstEnvironment(gymnasium.Env):
    """The first of a vector environment, as a single one; reset it at every end.

    The others, if there are any, take its actions too.
    """

    def __init__(self, vector: VectorEnv):
        self.vector = vector

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Its first observation and info."""
        observations, infos = self.vector.reset(seed=seed)
        return _row(observations, 0), _info_of(infos, 0)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of it."""
        actions = np.repeat(np.asarray(action)[None], self.vector.num_envs, axis=0)
        observations, *rest, infos = self.vector.step(actions)
        reward, terminated, truncated = (batch[0] for batch in rest)
        return _row(observations, 0), reward, terminated, truncated, _info_of(infos, 0)

    def close(self) -> None:
        """Closes both."""
        self.vector.close()


def _dead_worker(vector: VectorEnv) -> int | None:
    inner = vector.unwrapped
    if not isinstance(inner, AsyncVectorEnv):
        return None
    gone = [i for i, pipe in enumerate(inner.parent_pipes) if pipe is None]
    gone += [i for i, process in enumerate(inner.processes) if not process.is_alive()]
    return gone[0] if gone else None
