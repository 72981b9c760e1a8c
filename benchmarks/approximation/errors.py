"""The error of AReLiT's state in closed form, and how small it can be.

With a constant gate c, and keys and values whose entries are independent with mean 0 and
variance 1, the expected square of the Frobenius norm of C~_t - C_t is exactly

    d_v d_k sum_mn (delta(m, n) - [m = n])^2 lambda_m^2 lambda_n^2,   lambda_n = c (1 - c)^(t - n)

All errors here are that sum, divided by the sum for C_t itself, d_v d_k sum_n lambda_n^4, and its
mean over t far from the beginning. With rho = (1 - c)^2 the mean is a sum over lags,

    mean_n sum_u rho^|u| (delta(n, n + u) - [u = 0])^2

The proofs are in the documentation's page on the approximation.
"""

import numpy as np


def decays(gate: float, time: int) -> np.ndarray:
    """lambda_n = c (1 - c)^(t - n) for n = 1..t: how much of step n is left at time t."""
    return gate * (1 - gate) ** np.arange(time - 1, -1, -1.0)


def square_at(delta: np.ndarray, gate: float) -> float:
    """Relative expected square error of C_t after as many steps as `delta` has."""
    left = decays(gate, len(delta)) ** 2
    wrong = (delta - np.eye(len(delta))) ** 2
    return float(left @ wrong @ left / np.sum(left**2))


def full_wave_square(r: int, gate: float, time: int | None = None) -> float:
    """The error of `full_wave` and `odd_wave`: 2 q / (1 - q) with q = (1 - c)^(2 R), R = r + 1.

    At a time t: 2 sum_l q^l (1 - rho^(2 (t - l R))) / (1 - rho^(2 t)) over l >= 1 with l R < t.
    """
    rho, vectors = (1 - gate) ** 2, r + 1
    if time is None:
        return 2 * rho**vectors / (1 - rho**vectors)
    lags = np.arange(vectors, time, vectors)
    return float(2 * np.sum(rho**lags * (1 - rho ** (2 * (time - lags)))) / (1 - rho ** (2 * time)))


def half_wave_square(r: int, gate: float) -> float:
    """The error of `half_wave` over time: 2 a (1 + 2 / r) + b / r.

    a = rho^(2 r) / (1 - rho^(2 r)) are the repetitions after 2 r steps, b = (1 + rho^2) /
    (1 - rho^2) the mirror images, which lie an even number of steps apart.
    """
    rho = (1 - gate) ** 2
    repeated = rho ** (2 * r) / (1 - rho ** (2 * r))
    return 2 * repeated * (1 + 2 / r) + (1 + rho**2) / (1 - rho**2) / r


def thesis_square(r: int, gate: float) -> float:
    """The error of `thesis` over time: 2 a + M + k^2 S + 4 a m + 2 k (2 a + M), k = 2 / r.

    a = rho^r / (1 - rho^r) are the repetitions; S = (1 + rho) / (1 - rho) is the sum of all lags;
    M are the mirror images, S / r for odd r and 2 (1 + rho^2) / (1 - rho^2) / r for even r, and m,
    1 / r or 2 / r, is the share of the repetitions that are mirror images too.
    """
    rho, constant = (1 - gate) ** 2, 2 / r
    repeated = rho**r / (1 - rho**r)
    total = (1 + rho) / (1 - rho)
    even = (1 + rho**2) / (1 - rho**2)
    mirrored = total / r if r % 2 else 2 * even / r
    # For even r, mirror images are only at even lags, and twice as frequent.
    share = 1 / r if r % 2 else 2 / r
    crossed = 4 * repeated * share + 2 * constant * (2 * repeated + mirrored)
    return 2 * repeated + mirrored + constant**2 * total + crossed
