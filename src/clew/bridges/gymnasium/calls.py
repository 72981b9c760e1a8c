"""Calls to a vector environment, with whatever goes wrong in it as one kind of error."""

import contextlib
import multiprocessing
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from clew.bridges.gymnasium.faults import EnvironmentFault, EnvironmentHung
from clew.bridges.gymnasium.group import Failure
from clew.bridges.gymnasium.processes import GroupedVectorEnv
from clew.bridges.gymnasium.spaces import Array
from clew.bridges.gymnasium.workers import CLOSE_SECONDS, close_workers


class VectorCalls:
    """The calls to a vector environment, with its errors as `EnvironmentFault`.

    Args:
        vector: the vector environment.
        name: what the errors call it.
    """

    def __init__(self, vector: VectorEnv, name: str):
        self.vector, self.name = vector, name
        self.grouped = isinstance(vector, GroupedVectorEnv)
        self._sent: Array | None = None
        self._hung = False

    def reset(self, seed: int | None, timeout: float | None) -> tuple[Any, Any]:
        """Observations and info; each environment with a seed of its own, derived from `seed`.

        A step that nobody has waited for is waited for first, and forgotten.
        """
        if self.waiting:
            self.wait(timeout)
        with self._faults_of("reset", timeout):
            if isinstance(self.vector, GroupedVectorEnv):
                answer = self.vector.reset(seed=self._seeds(seed), timeout=timeout)
            elif isinstance(self.vector, AsyncVectorEnv):
                self.vector.reset_async(seed=self._seeds(seed))
                answer = self.vector.reset_wait(timeout)
            else:
                answer = self.vector.reset(seed=self._seeds(seed))
        self._require_no_failures(answer[1])
        return answer

    def send(self, actions: Array) -> None:
        """Sends actions to environments in processes; keeps them for others."""
        self._sent = actions
        if isinstance(self.vector, GroupedVectorEnv | AsyncVectorEnv):
            with self._faults_of("step", None):
                self.vector.step_async(actions)

    def wait(self, timeout: float | None) -> tuple[Any, Any, Any, Any, Any]:
        """The answer to `send`."""
        sent, self._sent = self._sent, None
        with self._faults_of("step", timeout):
            if isinstance(self.vector, GroupedVectorEnv | AsyncVectorEnv):
                answer = self.vector.step_wait(timeout)
            else:
                answer: Any = self.vector.step(sent)
        self._require_no_failures(answer[4])
        return answer

    @property
    def waiting(self) -> bool:
        """Whether actions were sent and not waited for."""
        return self._sent is not None

    def close(self) -> None:
        """Closes the environments and ends their processes, within a few seconds at most."""
        inner = self.vector.unwrapped
        if not isinstance(inner, AsyncVectorEnv):
            self.vector.close()
        elif not inner.closed:
            close_workers(inner, 0.0 if self._hung else CLOSE_SECONDS)

    @contextlib.contextmanager
    def _faults_of(self, call: str, timeout: float | None) -> Iterator[None]:
        """Whatever goes wrong in a call, "reset" or "step", as an `EnvironmentFault`."""
        try:
            yield
        except EnvironmentFault:
            raise
        except multiprocessing.TimeoutError as error:
            self._hung = True
            raise unanswered(self.vector, self.name, timeout) from error
        except Exception as error:
            raise failed(self.vector, self.name, call, traceback.format_exc()) from error

    def _require_no_failures(self, info: Any) -> None:
        if self.grouped and "failures" in info:
            raise failed(self.vector, self.name, "", "", info["failures"])

    def _seeds(self, seed: int | None) -> Any:
        """Gymnasium gives environment i of seed s what environment 0 of seed s + i has."""
        listed = GroupedVectorEnv | SyncVectorEnv | AsyncVectorEnv
        if seed is None or not isinstance(self.vector.unwrapped, listed):
            return seed
        return np.random.SeedSequence(seed).generate_state(self.vector.num_envs).tolist()


def failed(
    vector: VectorEnv, name: str, call: str, text: str, failures: Sequence[Failure] = ()
) -> EnvironmentFault:
    """The error for exceptions in environments.

    Args:
        vector: the vector environment; Gymnasium's own tells which of its workers failed.
        name: of the environment.
        call: "reset" or "step".
        text: the traceback.
        failures: what the groups of environments told; then call and text are theirs.
    """
    if failures:
        first = failures[0]
        others = f" (and {len(failures) - 1} others)" if len(failures) > 1 else ""
        index, step, call, text = first.index, first.episode_step, first.call, first.text
        place = f"environment {index}{others} raised in {call}, {step} steps into its episode"
    else:
        index, step = _dead_worker(vector), None
        which = "an environment" if index is None else f"environment {index}"
        place = f"{which} raised in {call}"
    lines = text.strip().splitlines()
    return EnvironmentFault(
        f"{name}: {place}: {lines[-1]}" + (f"\n{text}" if len(lines) > 1 else ""),
        env=name,
        index=index,
        episode_step=step,
        field=call,
        lost=not failures,
    )


def _dead_worker(vector: VectorEnv) -> int | None:
    inner = vector.unwrapped
    if not isinstance(inner, AsyncVectorEnv):
        return None
    gone = [i for i, pipe in enumerate(inner.parent_pipes) if pipe is None]
    gone += [i for i, process in enumerate(inner.processes) if not process.is_alive()]
    return gone[0] if gone else None


def unanswered(vector: VectorEnv, name: str, seconds: Any) -> EnvironmentHung:
    """The error for environments of Gymnasium's own `AsyncVectorEnv` that gave no answer."""
    assert isinstance(vector, AsyncVectorEnv)
    late = [i for i, pipe in enumerate(vector.parent_pipes) if pipe is None or not pipe.poll(0)]
    return EnvironmentHung(
        f"{name}: environments {', '.join(map(str, late))} gave no answer within {seconds:g} s",
        env=name,
        indices=late,
    )
