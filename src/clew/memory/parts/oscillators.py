"""The waves of AReLiT: frequencies, weights and scale of the approximate Kronecker delta."""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from clew.errors import require_at_least, require_choice

Frequencies = Literal["half_wave", "full_wave", "odd_wave", "thesis", "code"]
Scale = Literal["derived", "thesis", "code"]


class Oscillators(NamedTuple):
    """The waves of AReLiT as a table over one period, exact for any number of steps.

    Every set of frequencies in use is a rational multiple of pi, so that cos(omega_k t) repeats
    with an integer period, and a time step can be held modulo that period: no phase is ever lost.
    """

    table: np.ndarray  # [period, vectors], cos(omega_k t), or for a second vector sin(omega_k t)
    weights: np.ndarray  # [vectors], each vector's weight in the readout
    scale: float  # what the readout is multiplied by


def oscillators(frequencies: Frequencies, r: int, scale: Scale) -> Oscillators:
    """The frequencies, their weights in the readout and its scale.

    The approximate delta is delta(m, n) = scale sum_k weight_k wave_k(m) wave_k(n). Cosines alone:

    - `half_wave`: omega_k = pi k / r, k = 0..r, the two ends weighing one half; with the derived
      scale delta(m, n) = [m = n mod 2r] + [m = -n mod 2r].
    - `thesis`: omega_k = 2 pi k / r, k = 0..r (Pramanik, 2023, Algorithm 6, line 11); with the
      derived scale delta(m, n) = [m = n mod r] + [m = -n mod r] + 2 / r.
    - `code`: r values evenly from -pi to pi, as in the authors' published code.

    Cosine and sine of each frequency, and so no step's mirror image, in R = r + 1 vectors:

    - `full_wave`: omega_k = 2 pi k / R, 0 <= omega_k <= pi; delta(m, n) = [m = n mod R].
    - `odd_wave`: omega_k = pi (2k + 1) / R, 0 < omega_k <= pi; the same, and negative where
      (m - n) / R is odd.

    A frequency of 0 or pi has no sine and weighs one half. In mean square over time no R vectors
    of any kind do better than these two, see the documentation's page on the approximation.

    Scales: `derived` 2 / r (Eq. 4.6), which for the others is 2 over their own number of
    intervals: `code` r - 1, `full_wave` and `odd_wave` R; `thesis` 1 / (2 r) (Eq. 4.22); `code`
    1 / (2 vectors).
    """
    require_at_least("r", r, 1)
    require_choice("frequencies", frequencies, get_args(Frequencies))
    require_choice("scale", scale, get_args(Scale))
    if frequencies in ("full_wave", "odd_wave"):
        intervals = r + 1
        table, weights = _cosines_and_sines(intervals, odd=frequencies == "odd_wave")
    else:
        intervals = max(1, r - 1) if frequencies == "code" else r
        table, weights = _cosines(frequencies, r)
    factor = {"derived": 2 / intervals, "thesis": 1 / (2 * r), "code": 1 / (2 * len(weights))}
    return Oscillators(table, weights, factor[scale])


def _cosines(frequencies: Frequencies, r: int) -> tuple[np.ndarray, np.ndarray]:
    if frequencies == "half_wave":
        period, multiples = 2 * r, np.arange(r + 1)
    elif frequencies == "thesis":
        period, multiples = r, np.arange(r + 1)
    else:
        # omega_k = pi (2k - (r - 1)) / (r - 1) repeats after 2 (r - 1) steps; r = 1 is omega = -pi.
        period = max(2, 2 * (r - 1))
        multiples = 2 * np.arange(r) - (r - 1) if r > 1 else np.array([-1])
    weights = np.ones(len(multiples))
    if frequencies == "half_wave":
        weights[[0, -1]] = 0.5
    return np.cos(_phases(period, multiples)), weights


def _cosines_and_sines(vectors: int, odd: bool) -> tuple[np.ndarray, np.ndarray]:
    # In units of pi / vectors the frequencies are even numbers, or odd ones, up to pi.
    period = 2 * vectors if odd else vectors
    steps = np.arange(1 if odd else 0, vectors + 1, 2)
    phases = _phases(period, steps if odd else steps // 2)
    alone = (steps == 0) | (steps == vectors)
    table = np.concatenate([np.cos(phases), np.sin(phases)[:, ~alone]], axis=1)
    return table, np.concatenate([np.where(alone, 0.5, 1.0), np.ones(np.sum(~alone))])


def _phases(period: int, multiples: np.ndarray) -> np.ndarray:
    """The angles [period, multiples] of whole multiples of 2 pi / period, reduced exactly."""
    return 2 * math.pi * (np.outer(np.arange(period), multiples) % period) / period
