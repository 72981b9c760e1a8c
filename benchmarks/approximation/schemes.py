"""Sets of waves that AReLiT does not have, and the errors of any set over time, with bounds.

See the documentation's page on the approximation for the proofs, and
`benchmarks.approximation.errors` for what an error is here.
"""

import math
from collections.abc import Callable

import numpy as np
from benchmarks.approximation.errors import decays
from benchmarks.approximation.kernels import KERNELS, Kernel, from_waves

from clew.memory.parts.oscillators import Oscillators, full_wave


def _candidate(label: str, waves: Callable[[int], Oscillators]) -> Kernel:
    return Kernel(label, waves, lambda r, time: from_waves(waves(r), time))


PERIOD = 512
"""Steps over which candidates without their own period are tabulated."""


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
    """The full wave with weights that decrease towards omega = pi (Hann), delta(n, n) = 1."""
    full = full_wave(r)
    cosines = (r + 1) // 2 + 1
    fall = 0.5 + 0.5 * np.cos(2 * math.pi * np.arange(cosines) / (r + 1))
    has_sine = full.weights[:cosines] == 1.0
    weights = full.weights * np.concatenate([fall, fall[has_sine]])
    # Each pair adds 1 to delta(n, n), and a wave without a sine adds its weight.
    total = weights[: len(fall)].sum()
    return Oscillators(full.table, weights, 1 / total)


def _pairs(frequencies: np.ndarray, weights: np.ndarray) -> Oscillators:
    phases = np.outer(np.arange(PERIOD), frequencies)
    table = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    return Oscillators(table, np.tile(weights, 2), 1 / weights.sum())


CANDIDATES: dict[str, Kernel] = {
    "shifted_half_wave": _candidate("half wave, shifted", shifted_half_wave),
    "gauss": _candidate("Gauss-Legendre", gauss),
    "golden": _candidate("incommensurate", golden),
    "random_frequencies": _candidate("random frequencies", random_frequencies),
    "random_signs": _candidate("random signs", random_signs),
    "tapered": _candidate("full wave, tapered", tapered),
}
"""Other schemes that were tried, by name."""

SCHEMES: dict[str, Kernel] = {
    name: kernel for name, kernel in (KERNELS | CANDIDATES).items() if name != "window"
} | {"window": KERNELS["window"]}
"""Every approximate delta, by name."""


def square_over_time(waves: Oscillators, gate: float) -> float:
    """Relative expected square error of C_t, its mean over all late times t."""
    period = len(waves.table)
    weights = lag_weights(period, gate)
    delta = waves.scale * (waves.table * waves.weights) @ waves.table.T
    lags = (np.arange(period)[:, None] - np.arange(period)) % period
    return float(np.sum(weights[lags] * delta**2) - 2 * np.trace(delta)) / period + 1


def lag_weights(period: int, gate: float) -> np.ndarray:
    """Sum of rho^|u| over the lags u that are equal modulo the period, [period]."""
    rho, u = (1 - gate) ** 2, np.arange(period)
    return (rho**u + rho ** (period - u)) / (1 - rho**period)


def best_scale(waves: Oscillators, gate: float) -> float:
    """The factor on the readout that minimises `square_over_time` for this gate."""
    delta = waves.scale * (waves.table * waves.weights) @ waves.table.T
    mean = float(np.trace(delta)) / len(delta)
    return mean / (square_over_time(waves, gate) - 1 + 2 * mean)


def least_square(vectors: int, gate: float, time: int) -> float:
    """The least error of any rank-R approximation that does not look at keys and values (`window`).

    (rho^(2 R) - rho^(2 t)) / (1 - rho^(2 t)): Eckart and Young on diag(lambda^2).
    """
    rho = (1 - gate) ** 2
    kept = min(vectors, time)
    return float((rho ** (2 * kept) - rho ** (2 * time)) / (1 - rho ** (2 * time)))


def least_square_of_waves(vectors: int, gate: float, any_scale: bool = False) -> float:
    """The least error over time of any waves that only fade with the gate, whatever their form.

    2 q / (1 - q) if delta(n, n) is 1 on average; 2 q / (1 + q) with any scale; q = rho^R.
    """
    q = (1 - gate) ** (2 * vectors)
    return 2 * q / (1 + q if any_scale else 1 - q)


def attention_bound(delta: np.ndarray, gate: float) -> float:
    """A bound on the error of every entry of a_t, as a multiple of the largest |v|.

    max_n sum_m |delta(m, n) - [m = n]| lambda_m, for keys and queries that are nowhere negative.
    """
    return float(np.max(decays(gate, len(delta)) @ np.abs(delta - np.eye(len(delta)))))


def state_bound(delta: np.ndarray, gate: float) -> float:
    """A bound on the Frobenius norm of C~_t - C_t, as a multiple of max |v| max |k|."""
    left = decays(gate, len(delta))
    return float(left @ np.abs(delta - np.eye(len(delta))) @ left)
