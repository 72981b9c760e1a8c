"""The random inputs that the laws are checked with."""

from typing import Any, NamedTuple

import numpy as np

from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.laws.report import Precision
from clew.memory.laws.runs import Run, as_numpy, cast, chain, is_float, many, pull_many, zero_floats

CONTINUATION = 16
PATTERNS = ("none, fresh state", "none", "first", "random", "every step")
CASES = len(PATTERNS)


class Subject(NamedTuple):
    """What is checked, and how."""

    memory: AbstractMemory
    precision: Precision
    lengths: list[int]
    tolerances: tuple[float, float]


class Cases:
    """The random numbers of a check: `CASES` runs at a time, and a state to start them from."""

    def __init__(self, subject: Subject, random: np.random.Generator):
        self.memory = subject.memory
        self.state = cast(subject.memory.init_state(), subject.precision)
        self.dtype = np.dtype(subject.precision)
        self.random = random
        self.scan_length = max(subject.lengths) + CONTINUATION
        self.fresh = self.warm = many(self.state, CASES)

    def warm_up(self) -> None:
        """Draws `warm`, states in the middle of an episode."""
        time = self.scan_length
        nothing = (zero_floats(self.fresh), self.weights(time))
        data = (self.fresh, self.inputs(time), self.starts(time), nothing)
        warm, _, _ = pull_many(scan_steps, self.memory, *data)
        self.warm = as_numpy(warm)

    def inputs(self, time: int, size: float = 1.0) -> np.ndarray:
        """Random observations [case, time, in]."""
        return self._normal(time, self.memory.input_size) * self.dtype.type(size)

    def weights(self, time: int) -> np.ndarray:
        """Random cotangents of the outputs, [case, time, out]."""
        return self._normal(time, self.memory.output_size)

    def starts(self, time: int, rate: float = 0.125) -> np.ndarray:
        """Random start flags [case, time]: with this rate, episodes of 8 steps on average."""
        return self.random.random((CASES, time)) < rate

    def run(self, pieces: list, state: State, xs: Any, starts: Any, weights: Any) -> Run:
        """`chain` for this memory."""
        return chain(self.memory, pieces, state, xs, starts, weights, self.scan_length)

    def _normal(self, time: int, size: int) -> np.ndarray:
        return self.random.standard_normal((CASES, time, size)).astype(self.dtype)


def poisoned(array: np.ndarray, poison: list[float]) -> np.ndarray:
    """The first rows all NaN, infinite or huge; whole numbers as large as they can be."""
    bad = array.copy()
    for row, value in enumerate(poison):
        if is_float(array):
            bad[row] = value
        else:
            bad[row] = True if array.dtype == bool else np.iinfo(array.dtype).max
    return bad


def masked(run: Run, outputs: np.ndarray, inputs: np.ndarray | None) -> Run:
    """A run whose outputs (and input gradients) count only where the masks [case, time] say."""
    run = run._replace(output=np.where(outputs[..., None], run.output, 0.0))
    if inputs is None:
        return run
    return run._replace(inputs=np.where(inputs[..., None], run.inputs, 0.0))
