"""Approximate Kronecker deltas of R = r + 1 vectors: AReLiT's sets of waves, and a bound.

Each is given by the matrix delta(m, n) of the steps 1..time; the memory is read at the last one.
The effect of a set of waves on AReLiT is entirely in that matrix: C~ = sum delta(m, n) l_m m_n'
(Pramanik, 2023, section 4.1.2).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from clew.lab.studies.tmaze.models import Frequencies, Scale, ScaledWaves
from clew.memory.parts.oscillators import Oscillators


class Kernel(NamedTuple):
    """A way to approximate the delta with r + 1 vectors."""

    label: str
    """the label in pictures"""
    waves: Callable[[int], Oscillators] | None
    """maps r to its waves over one period; None if it forgets and is no sum of waves"""
    matrix: Callable[[int, int], np.ndarray]
    """maps r and a time to delta(m, n) [time, time]"""


def from_waves(waves: Oscillators, time: int, first: int = 1) -> np.ndarray:
    """delta(m, n) of `time` steps: first, first + 1, ..."""
    steps = np.arange(first, first + time) % len(waves.table)
    at = waves.table[steps]
    return waves.scale * (at * waves.weights) @ at.T


def window(r: int, time: int) -> np.ndarray:
    """The best of its rank: the last r + 1 outer products exactly, and none of those before.

    R vectors do that when each step overwrites the vectors of R steps before. It is a bound, not a
    memory: everything older than R steps is lost, whatever the gates are.
    """
    return np.diag((np.arange(time) >= time - (r + 1)).astype(float))


def _shipped(label: str, frequencies: Frequencies, scale: Scale = "derived") -> Kernel:
    def waves(r: int) -> Oscillators:
        # The code's r counts vectors; everything here has r + 1 of them.
        return ScaledWaves(frequencies, scale)(r + 1 if frequencies == "code" else r)

    # The published code starts at time 2.
    first = 2 if scale == "code" else 1
    return Kernel(label, waves, lambda r, time: from_waves(waves(r), time, first))


SHIPPED: dict[str, Kernel] = {
    "thesis": _shipped("thesis", "printed"),
    "thesis_4_22": _shipped("thesis, scale of Eq. 4.22", "printed", "printed"),
    "code": _shipped("published code", "code", "code"),
    "half_wave": _shipped("half wave", "half_wave"),
    "full_wave": _shipped("full wave", "full_wave"),
    "odd_wave": _shipped("odd wave", "odd_wave"),
}
"""The options of AReLiT and of `clew.lab.studies.tmaze.models`, by name."""

KERNELS: dict[str, Kernel] = SHIPPED | {"window": Kernel("window", None, window)}
"""Every approximate delta of the study, by name."""
