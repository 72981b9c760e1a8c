"""The law of `refresh`: what a state caches is what the current parameters would have left.

Trials find out which arrays those are. An array of the state is *rebuilt* if `refresh` restores it
whatever it is replaced by; the arrays that it is restored from are its *sources*.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.laws.cases import CASES, Cases
from clew.memory.laws.report import LawRecorder
from clew.memory.laws.runs import (
    as_numpy,
    direction,
    is_float,
    learn,
    many,
    moved,
    normal,
    wide,
    zero_floats,
)

DIRECTIONS = 3
STEPS = {"float32": (1e-2, 3e-3), "float64": (1e-5,)}
"""Steps of the central differences, relative to the size of what they move. The nearer result
counts, since a long step may pass a kink of a relu, and a short one is dominated by rounding."""
ALLOWED = {"float32": 2e-2, "float64": 1e-5}
"""How far a derivative may be from the central difference, whose own error was found to be 0.1 %
in single precision."""


def check_refresh(cases: Cases, record: LawRecorder) -> None:
    """`refresh` with the same parameters, its gradients, and `refresh` after a change of them."""
    probe = _Probe(cases)
    _check_same(cases, probe, record)
    if probe.rebuilds():
        _check_gradients(probe, record)
        _check_changed(probe, record)
    random, cases.random = cases.random, np.random.default_rng(0)
    for i in probe.unread():
        place = f"nothing reads the state's {probe.names[i]}, and refresh rebuilds nothing from it"
        if probe.has_a_cache_beside(i):
            record.add("refresh", 0, "changed parameters", f"{place},")
        else:
            record.report.warnings.append(place)
    cases.random = random  # the draws of other laws do not depend on this one


def _check_same(cases: Cases, probe: "_Probe", record: LawRecorder) -> None:
    time = cases.scan_length
    data = cases.draw(time)
    piece = [(scan_steps, time)]
    actual = cases.run(piece, cases.refresh(cases.memory, cases.warm)[0], *data)
    expected = cases.run(piece, cases.warm, *data)
    names = [f"{time} steps from a refreshed state, member {b}" for b in range(CASES)]
    record.compare("refresh", time, names, actual, expected)
    probe.direct = expected.state


def _check_gradients(probe: "_Probe", record: LawRecorder) -> None:
    """Compares the derivative of an output through `refresh` with differences, in some
    directions."""
    allowed = ALLOWED[probe.precision]
    for number in range(DIRECTIONS):
        deviation = probe.derivative()
        wrong = f"the gradient that passes refresh is off by {deviation:.2g} of its size,"
        name = f"an output after refresh, direction {number}, against differences"
        # Recorded as a share of what is allowed, since differences have their own error.
        share = record.tolerances["gradient"] * deviation / allowed
        record.add("refresh", 1, name, "" if deviation <= allowed else wrong, gradient=share)


def _check_changed(probe: "_Probe", record: LawRecorder) -> None:
    """After a change of one parameter, the state is as if the episode had been read with it."""
    for name, changed in probe.changes():
        value, stale = probe.stale(changed)
        wrong = f"the state's {stale} after refresh" if stale else ""
        what = f"parameters{name} changed after {probe.length} steps"
        record.add("refresh", probe.length, what, wrong, value=value)


class _Probe:
    """What can be tested about a memory's `refresh`, with the programs of the other laws."""

    def __init__(self, cases: Cases):
        self.cases, self.memory = cases, cases.memory
        self.shortest, self.length = cases.lengths[0], cases.lengths[:2][-1]
        self.precision = cases.dtype.name
        self.xs = cases.inputs(self.length)
        self.history = self._learn(self.memory, many(cases.state, CASES))[0]
        leaves, self.tree = jax.tree.flatten(self.history)
        paths = jax.tree_util.tree_leaves_with_path(self.history)
        self.names = [jax.tree_util.keystr(path) for path, _ in paths]
        self.floats = [i for i, leaf in enumerate(leaves) if is_float(leaf)]
        self.direct: Any = None
        self._find_sources()

    def rebuilds(self) -> bool:
        """Whether `refresh` does anything, even if only to gradients."""
        # Of some run, with respect to the states before their refresh and after it.
        _, (_, through, _) = self.cases.refresh(self.memory, self.cases.warm, self.direct)
        pairs = zip(jax.tree.leaves(self.direct), jax.tree.leaves(through), strict=True)
        return any(self.reads) or not all(np.array_equal(a, b) for a, b in pairs)

    def unread(self) -> list[int]:
        """The float arrays that are carried on but useless: neither a run nor `refresh` reads them.

        All parameters are moved away from their start, since a layer may begin closed, as in
        ReZero.
        """
        memory, warm = moved(self.memory, 0.3, self.cases.random), self.cases.warm
        weights = self.cases.normal(*self.xs.shape[:2], self.cases.columns)
        _, _, (_, direct, _) = self._pull_learn(memory, warm, self.xs, weights)
        _, (_, through, _) = self.cases.refresh(memory, warm, direct)
        here, there = (jax.tree.leaves(gradients) for gradients in (direct, through))
        used = set().union(*self.sources)
        return [
            i
            for i, a, b in zip(self.floats, here, there, strict=True)
            if a.size
            and not a.any()
            and not b.any()
            and not self.sources[i]
            and i not in used
            and self._is_carried_on(i)
        ]

    def has_a_cache_beside(self, i: int) -> bool:
        """Whether an array that nothing reads was kept for a cache that is never rebuilt.

        For example the inputs of cached keys: both only gain rows, and a parameter changes the keys
        alone. Without such a cache the array is a waste, but nothing that the memory computes is
        wrong.
        """
        caches = [
            j
            for j in self.floats
            if j != i and not self.sources[j] and self._is_carried_on(j) and self._written_once(j)
        ]
        if not caches or not self._written_once(i):
            return False
        old, fresh = jax.tree.leaves(self.history), many(self.cases.state, CASES)
        for _, changed in self.changes():
            read = jax.tree.leaves(self._learn(changed, fresh)[0])
            others = {j for j in self.floats if not np.array_equal(old[j], read[j])}
            if i not in others and others.intersection(caches):
                return True
        return False

    def derivative(self) -> float:
        """How far the gradient through `refresh` is from a central difference, as a median."""
        warm, time = self.cases.warm, self.shortest
        parameters, static = eqx.partition(self.memory, eqx.is_inexact_array)
        movable, fixed = eqx.partition(warm, is_float)
        ways = [
            jax.tree.map(lambda leaf: direction(leaf, self.cases.random), tree)
            for tree in (parameters, movable)
        ]
        xs = self.cases.inputs(time)
        weights = self.cases.of_outputs(self.cases.weights(time)) * (np.arange(time) == 0)[:, None]

        def output(size: float) -> tuple[np.ndarray, State, Any]:
            """The weighted output of each case, its state and what flows back to that."""
            here, there = (
                jax.tree.map(lambda a, d: (a + size * d).astype(a.dtype), tree, way)
                for tree, way in zip((parameters, movable), ways, strict=True)
            )
            new, _ = self.cases.refresh(eqx.combine(here, static), eqx.combine(there, fixed))
            _, ys, (_, back, _) = self._pull_learn(self.memory, new, xs, weights)
            return np.asarray(np.sum(ys * weights, (1, 2), np.float64)), new, back

        _, gradients = self.cases.refresh(self.memory, warm, output(0.0)[2])
        of_parameters = jax.tree.map(
            lambda g, d: _dot(g, np.asarray(d)[None]), gradients[0], ways[0]
        )
        of_state = jax.tree.map(_dot, gradients[1], ways[1])
        parts = np.array(jax.tree.leaves((of_parameters, of_state)))

        def deviation(step: float) -> float:
            expected = (output(step)[0] - output(-step)[0]) / (2 * step)
            size = np.sqrt(np.sum(parts**2, axis=0)) + np.abs(expected)
            known = size > 0
            off = np.abs(parts.sum(axis=0) - expected)[known] / size[known]
            return float(np.median(off)) if known.any() else 0.0

        return min(deviation(step) for step in STEPS[self.precision])

    def changes(self) -> Iterator[tuple[str, AbstractMemory]]:
        """The memory with one array of its parameters changed, for each of them."""
        parameters, static = eqx.partition(self.memory, eqx.is_inexact_array)
        leaves, tree = jax.tree.flatten(parameters)
        paths = jax.tree_util.tree_leaves_with_path(parameters)
        for i, (path, leaf) in enumerate(paths):
            new = moved(leaf, 0.3, self.cases.random)
            changed = jax.tree.unflatten(tree, [*leaves[:i], new, *leaves[i + 1 :]])
            yield jax.tree_util.keystr(path), eqx.combine(changed, static)

    def stale(self, changed: AbstractMemory) -> tuple[float, str]:
        """How far a refreshed state is from one that was read with the changed parameters.

        The arrays that are rebuilt from sources which the change left alone are compared, by their
        effect on the outputs of a chunk. Also returns the name of an array that is wrong.
        """
        read = self._learn(changed, many(self.cases.state, CASES))[0]
        new = jax.tree.leaves(self.cases.refresh(changed, self.history)[0])
        old, read = jax.tree.leaves(self.history), jax.tree.leaves(read)
        others = {i for i in self.floats if not np.array_equal(old[i], read[i])}
        every = set().union(*self.reads)
        expected, largest = None, 0.0
        for i in sorted(others):
            sources = self.sources[i] or (every if self._written_once(i) else set())
            if not sources or sources & others:
                continue
            if expected is None:
                expected = self._learn(changed, jax.tree.unflatten(self.tree, read))[1]
            mixed = jax.tree.unflatten(self.tree, [*read[:i], new[i], *read[i + 1 :]])
            outputs = self._learn(changed, mixed)[1]
            value = float(np.max(np.abs(outputs - expected)) / (1e-30 + np.max(np.abs(expected))))
            if not value <= self.cases.tolerances[0]:
                return value, self.names[i]
            largest = max(largest, value)
        return largest, ""

    def _find_sources(self) -> None:
        """Finds which arrays `refresh` reads for each array, and the sources of what it
        rebuilds."""
        before = jax.tree.leaves(self.cases.refresh(self.memory, self.history)[0])
        self.reads: list[set[int]] = [set() for _ in before]
        rebuilt = set()
        for j in self.floats:
            scrambled, _ = self.cases.refresh(self.memory, self._scrambled(self.history, j))
            for i, after in enumerate(jax.tree.leaves(scrambled)):
                same = np.array_equal(after, before[i])
                if same and i == j:
                    rebuilt.add(i)
                if not same and i != j:
                    self.reads[i].add(j)
        self.sources = [reads if i in rebuilt else set() for i, reads in enumerate(self.reads)]

    def _is_carried_on(self, i: int) -> bool:
        """Whether some of an array's numbers are still there after a step."""
        there = self._scrambled(self.history, i)
        after = jax.tree.leaves(self._learn(self.memory, there, 1)[0])[i]
        return bool(np.isin(after, jax.tree.leaves(there)[i]).any())

    def _written_once(self, i: int) -> bool:
        """Whether a step only moves an array's numbers and adds new ones, as in a cache."""
        there = self._scrambled(self.history, i)
        plain, other = (
            jax.tree.leaves(self._learn(self.memory, s, self.shortest)[0])[i]
            for s in (self.history, there)
        )
        return bool(np.all((plain == other) | np.isin(other, jax.tree.leaves(there)[i])))

    def _scrambled(self, state: State, i: int) -> State:
        leaves = jax.tree.leaves(state)
        noise = normal(leaves[i].shape, leaves[i].dtype, self.cases.random)
        return jax.tree.unflatten(self.tree, [*leaves[:i], noise, *leaves[i + 1 :]])

    def _learn(
        self, memory: AbstractMemory, state: State, time: int | None = None
    ) -> tuple[State, np.ndarray]:
        """The states and outputs of a chunk without starts."""
        xs = self.xs[:, : time or self.length]
        weights = np.zeros((*xs.shape[:2], self.cases.columns), self.cases.dtype)
        return self._pull_learn(memory, state, xs, weights)[:2]

    def _pull_learn(self, memory: AbstractMemory, state: State, xs: Any, weights: Any) -> tuple:
        starts, nothing = np.zeros(xs.shape[:2], bool), zero_floats(state)
        pull: Callable[..., tuple] = self.cases.programs.pull_many
        return as_numpy(pull(learn, memory, state, xs, starts, (nothing, weights)))


def _dot(gradient: np.ndarray, way: np.ndarray) -> np.ndarray:
    """The directional derivative of each case: JAX's gradient of z = x + iy is d/dx - i d/dy."""
    product = np.real(wide(gradient) * way)
    return product.reshape(len(product), -1).sum(axis=1)
