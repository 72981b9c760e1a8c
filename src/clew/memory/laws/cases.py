"""The random inputs that the laws are checked with."""

from typing import Any, NamedTuple

import numpy as np

from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.laws.report import Precision
from clew.memory.laws.runs import Programs, Run, as_numpy, cast, is_float, many, zero_floats

CONTINUATION = 16
PATTERNS = (
    *("none, fresh state", "none", "first", "random", "every step", "last", "every other step"),
    *("random, observations of size 10", "random, observations of size 1,000"),
)
CASES = len(PATTERNS)


class Subject(NamedTuple):
    """What is checked, and how."""

    memory: AbstractMemory
    precision: Precision
    lengths: list[int]
    tolerances: tuple[float, float]
    programs: Programs


class Cases:
    """The random numbers of a check: `CASES` runs at a time, and a state to start them from."""

    def __init__(self, subject: Subject, random: np.random.Generator):
        self.memory = subject.memory
        self.programs = subject.programs
        self.state = cast(subject.memory.init_state(), subject.precision)
        self.dtype = np.dtype(subject.precision)
        self.random = random
        self.columns = self.memory.output_size + len(self.memory.metric_names)
        self.tolerance = subject.tolerances[0]
        self.scan_length = max(subject.lengths) + CONTINUATION
        self.fresh = self.warm = many(self.state, CASES)

    def warm_up(self) -> None:
        """Draws `warm`, states in the middle of an episode."""
        time = self.scan_length
        weights = np.zeros((CASES, time, self.memory.output_size), self.dtype)
        data = (
            self.fresh,
            self.inputs(time),
            self.starts(time),
            (zero_floats(self.fresh), weights),
        )
        warm, _, _ = self.programs.pull_many(scan_steps, self.memory, *data)
        self.warm = as_numpy(warm)

    def inputs(self, time: int, size: float = 1.0) -> np.ndarray:
        """Random observations [case, time, in]."""
        return self.normal(CASES, time, self.memory.input_size) * self.dtype.type(size)

    def weights(self, time: int) -> np.ndarray:
        """Random cotangents of the outputs and then of the metrics, [case, time, out]."""
        return self.normal(CASES, time, self.columns)

    def nudged(self, inputs: np.ndarray) -> np.ndarray:
        """Observations with other last bits: rounding of some operations, as far as it can go."""
        size = 8 * np.finfo(self.dtype).eps
        signs = np.sign(self.random.standard_normal(inputs.shape))
        return (inputs * (1.0 + size * signs)).astype(self.dtype)

    def of_outputs(self, weights: np.ndarray) -> np.ndarray:
        """Weights of outputs alone: zeros for the metrics, which `step` does not have."""
        columns = np.arange(weights.shape[-1]) < self.memory.output_size
        return np.where(columns, weights, 0).astype(self.dtype)

    def starts(self, time: int, rate: float = 0.125) -> np.ndarray:
        """Random start flags [case, time]: with this rate, episodes of 8 steps on average."""
        return self.random.random((CASES, time)) < rate

    def normal(self, *shape: int) -> np.ndarray:
        """Random numbers of the check's precision."""
        return self.random.standard_normal(shape).astype(self.dtype)

    def run(self, pieces: list, state: State, xs: Any, starts: Any, weights: Any) -> Run:
        """`Programs.chain` for this memory."""
        data = (pieces, state, xs, starts, weights, self.scan_length)
        return self.programs.chain(self.memory, *data)


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
