"""Searches for something better than the full wave, and measures what it finds.

Descent from random starts minimises over every class of schemes. The objective is the mean over
time of the relative square error of C_t for one known gate, which is easier than for all gates.
`full_wave` with its best scale has 2 q / (1 + q), q = (1 - c)^(2 R), and there is a proof that
nothing here has less; the search is independent of the proof.
"""

from collections.abc import Callable

import numpy as np
from benchmarks.approximation.schemes import lag_weights
from scipy.optimize import minimize

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]

CLASSES: dict[str, str] = {
    "weights": "the half wave's own frequencies, weights of any sign fitted to the gate",
    "waves": "cosine and sine of any frequencies, weights of any sign",
    "same": "any functions of time, the same for keys and values, weights not negative",
    "signed": "any functions of time, the same for keys and values, weights of any sign",
    "different": "any functions of time for the keys, any others for the values",
    "moving": "any functions of time, read at every step with the best mixture for that step",
}
"""What may vary in each class, by name."""


def search(kind: str, vectors: int, gate: float, starts: int = 4, seed: int = 0) -> float:
    """The least mean square error, relative to C_t, that was found in one of `CLASSES`.

    R is at least 2; there are that many random starts for every period.
    """
    if kind == "weights":
        return fitted_weights(vectors, gate)
    random = np.random.default_rng(seed)
    periods = (0,) if kind == "waves" else (vectors, 2 * vectors, 2 * vectors + 1, 3 * vectors)
    best = np.inf
    for period in periods:
        for _ in range(starts):
            if kind == "waves":
                pairs, alone = divmod(vectors, 2)
                start = np.append(
                    random.uniform(0, np.pi, pairs), np.full(pairs + alone, 1 / pairs)
                )
                objective = waves_objective(gate, pairs)
            else:
                factor = 2 if kind == "different" else 1
                start = random.standard_normal(factor * period * vectors)
                objective = table_objective(kind, period, vectors, gate)
                if kind == "signed":
                    start = np.concatenate([start, random.standard_normal(vectors)])
            best = min(best, minimize(objective, start, jac=True, options={"maxiter": 500}).fun)
    return float(best)


def fitted_weights(vectors: int, gate: float) -> float:
    """Cosines of `half_wave` with the weights of least mean square error: linear equations."""
    table = np.cos(np.pi * np.outer(np.arange(2 * vectors - 2), np.arange(vectors)) / (vectors - 1))
    period = len(table)
    weights = _lags(period, gate)
    products = np.array([np.outer(wave, wave) for wave in table.T])
    square = np.einsum("kij,ij,lij->kl", products, weights, products) / period
    linear = np.einsum("kii->k", products) / period
    return float(1 - linear @ np.linalg.solve(square, linear))


def waves_objective(gate: float, pairs: int) -> Objective:
    """The error of frequencies, then weights: sum over lags of rho^|u| (kappa(u) - [u = 0])^2.

    If there is one weight more than frequencies, it is that of a constant, which has no sine.
    """
    lags = np.arange(int(np.log(1e-12) / (2 * np.log1p(-gate))))
    weights = (1 - gate) ** (2 * lags) * np.where(lags == 0, 1, 2)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        omega, amplitude = x[:pairs], x[pairs:]
        omega = np.append(omega, np.zeros(len(amplitude) - pairs))
        cosines, sines = np.cos(np.outer(lags, omega)), np.sin(np.outer(lags, omega))
        wrong = cosines @ amplitude - (lags == 0)
        slope = 2 * weights * wrong
        toward = [(-(slope * lags) @ sines * amplitude)[:pairs], slope @ cosines]
        return float(weights @ wrong**2), np.concatenate(toward)

    return objective


def table_objective(kind: str, period: int, vectors: int, gate: float) -> Objective:
    """The error of a table over one period, as its class reads it."""
    if kind == "moving":
        return _moving(period, vectors, gate)
    weights, shape = _lags(period, gate), (period, vectors)

    def error(a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
        delta = a @ b.T
        value = np.sum(weights * delta**2) - 2 * np.trace(delta)
        return float(value) / period + 1, 2 * (weights * delta - np.eye(period)) / period

    def same(x: np.ndarray) -> tuple[float, np.ndarray]:
        a = x.reshape(shape)
        value, slope = error(a, a)
        return value, ((slope + slope.T) @ a).ravel()

    def signed(x: np.ndarray) -> tuple[float, np.ndarray]:
        a, sign = x[:-vectors].reshape(shape), x[-vectors:]
        value, slope = error(a * sign, a)
        both = (slope + slope.T) @ a
        return value, np.concatenate([(both * sign).ravel(), np.sum(a * (slope @ a), axis=0)])

    def different(x: np.ndarray) -> tuple[float, np.ndarray]:
        a, b = x.reshape(2, *shape)
        value, slope = error(a, b)
        return value, np.concatenate([(slope @ b).ravel(), (slope.T @ a).ravel()])

    return {"same": same, "signed": signed, "different": different}[kind]


def _moving(period: int, vectors: int, gate: float) -> Objective:
    """The error when every step reads with the best R x R mixture: what a projection P misses.

    The square error at t is tr S^2 - tr (P S P S), S = diag(lambda^2), P onto the columns of the
    table, weighted by how much of them is left.
    """
    ages = np.arange(period + int(np.log(1e-9) / (2 * np.log1p(-gate))))
    left = (1 - gate) ** ages
    rows = (np.arange(period)[:, None] - ages) % period

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        a = left[:, None] * x.reshape(period, vectors)[rows]
        inverse = np.linalg.pinv(a)
        kept = inverse @ (left[:, None] ** 2 * a)
        value = 1 - np.mean(np.trace(kept @ kept, axis1=1, axis2=2)) / np.sum(left**4)
        # d tr(P S P S) = 4 tr(A+ S P S (1 - P) dA), A+ the pseudo-inverse.
        moved = (inverse * left**2) @ a @ (inverse * left**2)
        moved = moved - moved @ a @ inverse
        slope = -4 * moved.transpose(0, 2, 1) * left[:, None] / (period * np.sum(left**4))
        total = np.zeros((period, vectors))
        np.add.at(total, rows, slope)
        return float(value), total.ravel()

    return objective


def _lags(period: int, gate: float) -> np.ndarray:
    steps = np.arange(period)
    return lag_weights(period, gate)[(steps[:, None] - steps) % period]
