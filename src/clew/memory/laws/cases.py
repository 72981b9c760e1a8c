"""The random inputs with which the laws are checked."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.errors import UserError, shapes_of
from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.laws.report import Precision
from clew.memory.laws.runs import (
    Programs,
    Run,
    RunFunction,
    as_numpy,
    cast,
    is_float,
    learn,
    many,
    normal,
    renew,
    zero_floats,
)

CONTINUATION = 16
PATTERNS = (
    *("none, fresh state", "none", "first", "random", "every step", "last", "every other step"),
    *("random, observations of size 10", "random, observations of size 1,000"),
)
CASES = len(PATTERNS)


class Cases:
    """The random numbers of a check: `CASES` runs at a time, and a state to start them from.

    Args:
        memory: the memory to check, already in this precision.
        precision: of all numbers.
        lengths: of chunks, from the shortest to the longest.
        tolerances: of values and of gradients.
    """

    def __init__(
        self,
        memory: AbstractMemory,
        precision: Precision,
        lengths: list[int],
        tolerances: tuple[float, float],
    ):
        self.memory, self.lengths, self.tolerances = memory, lengths, tolerances
        self.programs = Programs(memory)
        self.state = cast(memory.init_state(), precision)
        if not all(map(_of_numbers, jax.tree.leaves(self.state))):
            raise UserError(
                f"the state of {type(self.memory).__name__} is {shapes_of(self.state)}; expected "
                "arrays of numbers, and of a random key jax.random.key_data(key)"
            )
        self.dtype = np.dtype(precision)
        self.random = np.random.default_rng(0)
        self.columns = self.memory.output_size + len(self.memory.metric_names)
        self.scan_length = max(lengths) + CONTINUATION
        self.fresh = self.warm = many(self.state, CASES)

    def warm_up(self, seed: int) -> None:
        """Starts from new random numbers, and draws `warm`, states in the middle of an episode."""
        self.random = np.random.default_rng(seed)
        time = self.scan_length
        weights = np.zeros((CASES, time, self.memory.output_size), self.dtype)
        data = (self.fresh, self.inputs(time), self.starts(time))
        nothing = (zero_floats(self.fresh), weights)
        warm, _, _ = self.programs.pull_many(scan_steps, self.memory, *data, nothing)
        self.warm = as_numpy(warm)

    def inputs(self, time: int, size: float = 1.0) -> np.ndarray:
        """Random observations [case, time, in]."""
        return self.normal(CASES, time, self.memory.input_size) * self.dtype.type(size)

    def weights(self, time: int) -> np.ndarray:
        """Random cotangents of the outputs and then of the metrics, [case, time, out]."""
        return self.normal(CASES, time, self.columns)

    def nudged(self, inputs: np.ndarray) -> list[np.ndarray]:
        """Observations whose last bits differ: the largest effect of some rounded operations.

        There are four versions, since one may by chance not affect what another does: a direction,
        its opposite, and both at other steps.
        """
        size = 8 * np.finfo(self.dtype).eps
        signs = np.sign(self.random.standard_normal(inputs.shape))
        ways = (signs, -signs, np.roll(signs, 1, axis=1), -np.roll(signs, 1, axis=1))
        return [(inputs * (1.0 + size * way)).astype(self.dtype) for way in ways]

    def of_outputs(self, weights: np.ndarray) -> np.ndarray:
        """Weights of outputs alone: zeros for the metrics, which `step` does not have."""
        columns = np.arange(weights.shape[-1]) < self.memory.output_size
        return np.where(columns, weights, 0).astype(self.dtype)

    def starts(self, time: int, rate: float = 0.125) -> np.ndarray:
        """Random start flags [case, time]: with this rate, episodes of 8 steps on average."""
        return self.random.random((CASES, time)) < rate

    def normal(self, *shape: int) -> np.ndarray:
        """Random numbers of the check's precision."""
        return normal(shape, self.dtype, self.random)

    def draw(self, time: int, rate: float = 0.125) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Random observations, start flags and cotangents, as the methods above."""
        return self.inputs(time), self.starts(time, rate), self.weights(time)

    def run(
        self,
        pieces: list[tuple[RunFunction, int]],
        state: State,
        xs: np.ndarray,
        starts: np.ndarray,
        weights: np.ndarray,
    ) -> Run:
        """Runs the pieces one after the other and carries the gradient back through all of them.

        A scan is padded to `scan_length`, so that it compiles once; it can only be the last piece.

        Args:
            pieces: how to run each piece, and its length.
            state: the state before the first, leaves [case, ...].
            xs: observations of all pieces together, [case, time, in].
            weights: cotangents of the outputs and the metrics, [case, time, out].
        """
        parts, at = [], 0
        for run, length in pieces:
            end = self.scan_length if run is scan_steps else length
            cut = [_padded(a[:, at : at + length], end) for a in (xs, starts, weights)]
            if run is not learn:
                cut[2] = cut[2][..., : self.memory.output_size]
            parts.append((run, length, *cut))
            at += length
        before, pull = [state], self.programs.pull_many
        for run, _, x, start, weight in parts[:-1]:
            nothing = (zero_floats(state), np.zeros_like(weight))
            after, _, _ = pull(run, self.memory, before[-1], x, start, nothing)
            before.append(as_numpy(after))
        cotangent, outputs, inputs, total = zero_floats(state), [], [], None
        for (run, length, x, start, weight), old in reversed(list(zip(parts, before, strict=True))):
            _, ys, gradients = pull(run, self.memory, old, x, start, (cotangent, weight))
            of_parameters, cotangent, of_inputs = as_numpy(gradients)
            total = of_parameters if total is None else jax.tree.map(np.add, total, of_parameters)
            columns = [(0, 0), (0, 0), (0, weights.shape[-1] - ys.shape[-1])]
            outputs.insert(0, np.pad(np.asarray(ys)[:, :length], columns))
            inputs.insert(0, of_inputs[:, :length])
        return Run(np.concatenate(outputs, 1), total, cotangent, np.concatenate(inputs, 1))

    def refresh(
        self, memory: AbstractMemory, state: State, cotangent: Any = None
    ) -> tuple[State, Any]:
        """The states, rebuilt for a memory's parameters, and their gradients.

        Args:
            memory: the memory whose parameters are used.
            state: leaves [case, ...].
            cotangent: of the float leaves of the rebuilt states; zeros by default.

        Returns:
            The rebuilt states; gradients of parameters, states and observations (there are none of
            these).
        """
        cotangent = zero_floats(state) if cotangent is None else cotangent
        xs = np.zeros((CASES, 0, memory.input_size), self.dtype)
        ys = np.zeros((CASES, 0, memory.output_size), self.dtype)
        data = (state, xs, np.zeros((CASES, 0), bool), (cotangent, ys))
        after, _, gradients = self.programs.pull_many(renew, memory, *data)
        return as_numpy(after), as_numpy(gradients)


def poisoned(array: np.ndarray, poison: list[float]) -> np.ndarray:
    """The array with its first rows all NaN, infinite or huge; integers as large as possible."""
    bad = array.copy()
    for row, value in enumerate(poison):
        if np.iscomplexobj(array):
            bad[row] = complex(value, value)
        elif is_float(array):
            bad[row] = value
        else:
            bad[row] = True if array.dtype == bool else np.iinfo(array.dtype).max
    return bad


def masked(run: Run, outputs: np.ndarray, inputs: np.ndarray | None) -> Run:
    """A run whose outputs (and input gradients) count only where the masks [case, time] are
    true."""
    run = run._replace(output=np.where(outputs[..., None], run.output, 0.0))
    if inputs is None:
        return run
    return run._replace(inputs=np.where(inputs[..., None], run.inputs, 0.0))


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    widths = [(0, 0), (0, length - array.shape[1])] + [(0, 0)] * (array.ndim - 2)
    return np.pad(array, widths)


def _of_numbers(leaf: Any) -> bool:
    extended = jax.dtypes.extended
    return eqx.is_array_like(leaf) and not jnp.issubdtype(jnp.result_type(leaf), extended)
