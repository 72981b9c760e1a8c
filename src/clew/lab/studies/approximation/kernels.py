"""Approximate Kronecker deltas of R = r + 1 vectors: AReLiT's sets of waves, and candidates.

Each is given by the matrix delta(m, n) of the steps 1..time, at which the memory is read at the
last one. What a set of waves does to AReLiT is all in that matrix: C~ = sum delta(m, n) l_m m_n'
(Pramanik, 2023, section 4.1.2).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from clew.lab.studies.tmaze.models import Frequencies, Scale, ScaledWaves
from clew.memory.parts.oscillators import Oscillators, full_wave


class Kernel(NamedTuple):
    """A way to approximate the delta with r + 1 vectors."""

    label: str
    """what it is called in pictures"""
    waves: Callable[[int], Oscillators] | None
    """from r to its waves over one period, or None if it forgets and is no sum of waves"""
    matrix: Callable[[int, int], np.ndarray]
    """from r and a time to delta(m, n) [time, time]"""


def from_waves(waves: Oscillators, time: int, first: int = 1) -> np.ndarray:
    """delta(m, n) of the steps first, first + 1, ..., of which there are `time`."""
    steps = np.arange(first, first + time) % len(waves.table)
    at = waves.table[steps]
    return waves.scale * (at * waves.weights) @ at.T


def window(r: int, time: int) -> np.ndarray:
    """The best of its rank: the last r + 1 outer products exactly, those before not at all.

    R vectors do that when each step overwrites the vectors of R steps before. It is a bound, and
    no memory: what is older than R steps is gone whatever the gates say.
    """
    return np.diag((np.arange(time) >= time - (r + 1)).astype(float))


def _shipped(label: str, frequencies: Frequencies, scale: Scale = "derived") -> Kernel:
    def waves(r: int) -> Oscillators:
        # The code's r counts vectors; everything here has r + 1 of them.
        return ScaledWaves(frequencies, scale)(r + 1 if frequencies == "code" else r)

    # The published code's first step has time 2.
    first = 2 if scale == "code" else 1
    return Kernel(label, waves, lambda r, time: from_waves(waves(r), time, first))


def _candidate(label: str, waves: Callable[[int], Oscillators]) -> Kernel:
    return Kernel(label, waves, lambda r, time: from_waves(waves(r), time))


PERIOD = 512
"""Steps over which candidates without a period of their own are tabulated."""


def shifted_half_wave(r: int) -> Oscillators:
    """cos(omega (t - 1/2)), omega = pi k / R, k = 0..R - 1: exact for R steps, then mirrored."""
    vectors = r + 1
    steps, k = np.arange(2 * vectors), np.arange(vectors)
    table = np.cos(math.pi * np.outer(2 * steps - 1, k) / (2 * vectors))
    return Oscillators(table, np.where(k == 0, 0.5, 1.0), 2 / vectors)


def gauss(r: int) -> Oscillators:
    """Eq. 4.2 by Gauss and Legendre's rule with R nodes, in place of the trapezoidal rule."""
    nodes, weights = np.polynomial.legendre.leggauss(r + 1)
    table = np.cos(np.outer(np.arange(PERIOD), math.pi * (nodes + 1) / 2))
    return Oscillators(table, weights, 1.0)


def golden(r: int) -> Oscillators:
    """Incommensurate: cosine and sine of omega_k = pi frac(k phi), phi the golden ratio."""
    pairs = np.arange(1, (r + 1) // 2 + 1)
    return _pairs(math.pi * np.modf(pairs * (math.sqrt(5) - 1) / 2)[0], np.ones(len(pairs)))


def random_frequencies(r: int) -> Oscillators:
    """Cosine and sine of frequencies drawn evenly from (0, pi): random features."""
    random = np.random.default_rng(r)
    count = (r + 1) // 2
    return _pairs(random.uniform(0, math.pi, count), np.ones(count))


def random_signs(r: int) -> Oscillators:
    """Signs drawn at every step, as in the rank-one trick of Tallec and Ollivier (2017)."""
    table = np.random.default_rng(r).choice([-1.0, 1.0], (PERIOD, r + 1))
    return Oscillators(table, np.ones(r + 1), 1 / (r + 1))


def tapered(r: int) -> Oscillators:
    """The full wave with weights that fall off towards omega = pi (Hann), delta(n, n) = 1."""
    full = full_wave(r)
    cosines = (r + 1) // 2 + 1
    fall = 0.5 + 0.5 * np.cos(2 * math.pi * np.arange(cosines) / (r + 1))
    has_sine = full.weights[:cosines] == 1.0
    weights = full.weights * np.concatenate([fall, fall[has_sine]])
    # Each pair adds 1 to delta(n, n), a wave without a sine its weight.
    total = weights[: len(fall)].sum()
    return Oscillators(full.table, weights, 1 / total)


def _pairs(frequencies: np.ndarray, weights: np.ndarray) -> Oscillators:
    phases = np.outer(np.arange(PERIOD), frequencies)
    table = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    return Oscillators(table, np.tile(weights, 2), 1 / weights.sum())


SHIPPED: dict[str, Kernel] = {
    "thesis": _shipped("thesis", "printed"),
    "thesis_4_22": _shipped("thesis, scale of Eq. 4.22", "printed", "printed"),
    "code": _shipped("published code, its scale", "code", "code"),
    "half_wave": _shipped("half wave", "half_wave"),
    "full_wave": _shipped("full wave", "full_wave"),
    "odd_wave": _shipped("odd wave", "odd_wave"),
}
"""The options of AReLiT and of `clew.lab.studies.tmaze.models`, by name."""

CANDIDATES: dict[str, Kernel] = {
    "shifted_half_wave": _candidate("half wave, shifted", shifted_half_wave),
    "gauss": _candidate("Gauss-Legendre", gauss),
    "golden": _candidate("incommensurate", golden),
    "random_frequencies": _candidate("random frequencies", random_frequencies),
    "random_signs": _candidate("random signs", random_signs),
    "tapered": _candidate("full wave, tapered", tapered),
}
"""What else was tried, by name."""

KERNELS: dict[str, Kernel] = SHIPPED | CANDIDATES | {"window": Kernel("window", None, window)}
"""Every approximate delta of the study, by name."""
