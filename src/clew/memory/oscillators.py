"""The cosines of AReLiT: frequencies, weights and scale of the approximate Kronecker delta."""

import math
from typing import Literal, NamedTuple

import numpy as np

from clew.errors import require_at_least, require_choice

Frequencies = Literal["half_wave", "thesis", "code"]
Scale = Literal["derived", "thesis", "code"]


class Oscillators(NamedTuple):
    """The cosines of AReLiT as a table over one period, exact for any number of steps.

    Every set of frequencies in use is a rational multiple of pi, so that cos(omega_k t) repeats
    with an integer period, and a time step can be held modulo that period: no phase is ever lost.
    """

    table: np.ndarray  # [period, vectors], cos(omega_k t)
    weights: np.ndarray  # [vectors], each vector's weight in the readout
    scale: float  # what the readout is multiplied by


def oscillators(frequencies: Frequencies, r: int, scale: Scale) -> Oscillators:
    """The frequencies, their weights in the readout and its scale.

    The approximate delta is delta(m, n) = scale sum_k weight_k cos(omega_k m) cos(omega_k n):

    - `half_wave`: omega_k = pi k / r, k = 0..r, the two ends weighing one half; with the derived
      scale delta(m, n) = [m = n mod 2r] + [m = -n mod 2r].
    - `thesis`: omega_k = 2 pi k / r, k = 0..r (Pramanik, 2023, Algorithm 6, line 11); with the
      derived scale delta(m, n) = [m = n mod r] + [m = -n mod r] + 2 / r.
    - `code`: r values evenly from -pi to pi, as in the authors' published code.

    Scales: `derived` 2 / r (Eq. 4.6; for `code` 2 / (r - 1), its own number of intervals),
    `thesis` 1 / (2 r) (Eq. 4.22), `code` 1 / (2 vectors).
    """
    require_at_least("r", r, 1)
    require_choice("frequencies", frequencies, ("half_wave", "thesis", "code"))
    require_choice("scale", scale, ("derived", "thesis", "code"))
    if frequencies == "half_wave":
        period, multiples = 2 * r, np.arange(r + 1)
    elif frequencies == "thesis":
        period, multiples = r, np.arange(r + 1)
    else:
        # omega_k = pi (2k - (r - 1)) / (r - 1) repeats after 2 (r - 1) steps; r = 1 is omega = -pi.
        period = max(2, 2 * (r - 1))
        multiples = 2 * np.arange(r) - (r - 1) if r > 1 else np.array([-1])
    phases = np.outer(np.arange(period), multiples) % period
    weights = np.ones(len(multiples))
    if frequencies == "half_wave":
        weights[[0, -1]] = 0.5
    intervals = max(1, r - 1) if frequencies == "code" else r
    factor = {"derived": 2 / intervals, "thesis": 1 / (2 * r), "code": 1 / (2 * len(multiples))}
    return Oscillators(np.cos(2 * math.pi * phases / period), weights, factor[scale])
