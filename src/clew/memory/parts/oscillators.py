"""The waves whose products approximate AReLiT's Kronecker delta."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from clew.errors import MOST_PARTS, require_at_least


class Oscillators(NamedTuple):
    """Waves as a table over one period, exact for any number of steps.

    The approximate delta is delta(m, n) = scale sum_k weight_k wave_k(m) wave_k(n). Every set of
    frequencies in use is a rational multiple of pi, so that cos(omega_k t) repeats with an integer
    period, and a time step can be held modulo that period: no phase is ever lost.
    """

    table: np.ndarray
    """[period, vectors], cos(omega_k t), or sin(omega_k t) for a second vector"""
    weights: np.ndarray
    """[vectors], each vector's weight in the readout"""
    scale: float
    """the factor of the readout"""

    @property
    def constant(self) -> bool:
        """Whether the first wave is always 1, so that its key vector is the normaliser."""
        return bool(np.all(self.table[:, 0] == 1.0))


Waves = Callable[[int], Oscillators]
"""From r, the number of intervals between frequencies, to r + 1 waves."""


def half_wave(r: int) -> Oscillators:
    """Cosines of omega_k = pi k / r, k = 0..r, with weight one half at both ends.

    delta(m, n) = [m = n mod 2r] + [m = -n mod 2r]. Source: Pramanik (2023), Eq. 4.6.
    """
    require_at_least("r", r, 1, MOST_PARTS)
    weights = np.ones(r + 1)
    weights[[0, -1]] = 0.5
    return Oscillators(np.cos(phases(2 * r, np.arange(r + 1))), weights, 2 / r)


def full_wave(r: int) -> Oscillators:
    """Cosine and sine of omega_k = 2 pi k / R, 0 <= omega_k <= pi, in R = r + 1 vectors.

    delta(m, n) = [m = n mod R], without any step's mirror image. In mean square over time no set of
    R vectors does better than these or `odd_wave`; see the documentation's page on the
    approximation.
    """
    return _cosines_and_sines(r, odd=False)


def odd_wave(r: int) -> Oscillators:
    """Cosine and sine of omega_k = pi (2k + 1) / R, 0 < omega_k <= pi, in R = r + 1 vectors.

    Like `full_wave`, but negative where (m - n) / R is odd.
    """
    return _cosines_and_sines(r, odd=True)


def _cosines_and_sines(r: int, odd: bool) -> Oscillators:
    """A frequency of 0 or pi has no sine and weight one half."""
    require_at_least("r", r, 1, MOST_PARTS)
    vectors = r + 1
    # In units of pi / vectors the frequencies are even numbers, or odd ones, up to pi.
    steps = np.arange(1 if odd else 0, vectors + 1, 2)
    angles = phases(2 * vectors if odd else vectors, steps if odd else steps // 2)
    alone = (steps == 0) | (steps == vectors)
    table = np.concatenate([np.cos(angles), np.sin(angles)[:, ~alone]], axis=1)
    weights = np.concatenate([np.where(alone, 0.5, 1.0), np.ones(np.sum(~alone))])
    return Oscillators(table, weights, 2 / vectors)


def phases(period: int, multiples: np.ndarray) -> np.ndarray:
    """The angles [period, multiples] of whole multiples of 2 pi / period, reduced exactly."""
    return 2 * math.pi * (np.outer(np.arange(period), multiples) % period) / period


WAVES: dict[str, Waves] = {"half_wave": half_wave, "full_wave": full_wave, "odd_wave": odd_wave}
"""The waves by name."""
