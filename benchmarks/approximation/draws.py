"""Random keys and values: the error of AReLiT's state on random draws."""

from typing import NamedTuple

import numpy as np
from benchmarks.approximation.errors import decays

NEGLIGIBLE = 1e-8
"""Steps with less than this weight do not change any digit that is shown."""


class Grams(NamedTuple):
    """Inner products of the values, and of the keys, of every draw."""

    values: np.ndarray
    """[*draws, time, time]"""
    keys: np.ndarray
    """[*draws, time, time]"""


def draw_normal(draws: int, time: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and keys of section 4.3: independent normal entries, each [draws, time, size]."""
    values, keys = np.random.default_rng(seed).standard_normal((2, draws, time, size))
    return values, keys


def grams(values: np.ndarray, keys: np.ndarray) -> Grams:
    """All that the Frobenius norm needs from a draw; its cost no longer depends on the sizes."""
    return Grams(*(x @ np.swapaxes(x, -1, -2) for x in (values, keys)))


def norms(matrix: np.ndarray, gate: float, drawn: Grams) -> np.ndarray:
    """Frobenius norm of sum_mn matrix(m, n) l_m m_n' in every draw, for a constant gate.

    Its square is the sum over m, n, i, j of matrix(m, n) matrix(i, j) (l_m . l_i) (m_n . m_j).

    Args:
        matrix: delta(m, n), or its error, [time, time].
        gate: c, of keys and values alike.
        drawn: keys and values before the gates.
    """
    time = len(matrix)
    kept = time if gate < 1e-9 else 1
    if gate < 1:
        kept = min(time, 1 + int(np.log(NEGLIGIBLE) / np.log1p(-gate)))
    left = decays(gate, time)[-kept:]
    late = left[:, None] * matrix[-kept:, -kept:] * left
    values, keys = (g[:, time - kept : time, time - kept : time] for g in drawn)
    return np.sqrt(np.maximum(np.sum((late @ keys) * (values @ late), axis=(1, 2)), 0))


def least_norms(values: np.ndarray, keys: np.ndarray, gate: float) -> np.ndarray:
    """Singular values of C_t of every draw, [draws, size], which limit every rank."""
    left = decays(gate, values.shape[1])[:, None]
    states = (left * values).transpose(0, 2, 1) @ (left * keys)
    return np.linalg.svd(states, compute_uv=False)
