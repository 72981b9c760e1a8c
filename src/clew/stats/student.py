"""Student's t distribution, central and not.

SciPy is imported inside the functions: it would make every start of the command line slower, for
something that few commands need.
"""

from functools import cache

import numpy as np

NODES = 200  # of Gauss and Legendre, on each side of the step of the integrand
LEFT_OUT = 1e-15  # probability at each end of the chi distribution


def two_sided_p(statistic: float, degrees: float) -> float:
    """The probability that |T| is at least |statistic|, for T of so many degrees of freedom."""
    from scipy.special import stdtr

    return min(1.0, float(2 * stdtr(degrees, -abs(statistic))))


def critical_value(alpha: float, degrees: float) -> float:
    """The value that |T| exceeds with probability alpha, for T of so many degrees of freedom."""
    from scipy.special import stdtrit

    return -float(stdtrit(degrees, alpha / 2))


def rejection_rate(critical: float, degrees: float, shift: float) -> float:
    """The probability that |T| exceeds a critical value when T is not central.

    T = (Z + shift) / V with Z normal and V the root of a chi-square over its degrees of freedom k,
    so that

        P(|T| > c) = E_V[Phi(shift - c V) + Phi(-shift - c V)]

    integrated over log V, in two parts that meet where the first term steps down (c V = shift).
    `scipy.stats.nct` is not used: it gives NaN in ordinary cases, such as 10 degrees of freedom, a
    shift of 10 and the critical value of alpha = 0.001 (SciPy 1.17, its issue 25470).

    Args:
        critical: value of the test, above 0.
        degrees: of freedom, above 0.
        shift: the noncentrality, at least 0.
    """
    from scipy.special import gammaincinv, gammaln, ndtr

    half = degrees / 2
    ends = 0.5 * np.log(gammaincinv(half, np.array([LEFT_OUT, 1 - LEFT_OUT])) / half)
    middle = np.clip(np.log(max(shift, 1e-300) / critical), *ends)
    nodes, weights = _nodes()
    total = 0.0
    for low, high in ((ends[0], middle), (middle, ends[1])):
        log_v = low + (high - low) * (nodes + 1) / 2
        squares = np.exp(2 * log_v)
        log_density = np.log(2) + half * np.log(half) - gammaln(half) + half * (2 * log_v - squares)
        reached = critical * np.sqrt(squares)
        values = np.exp(log_density) * (ndtr(shift - reached) + ndtr(-shift - reached))
        total += float(np.sum(weights * values) * (high - low) / 2)
    return min(1.0, total)


@cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1], which take longer to find than all the rest."""
    return np.polynomial.legendre.leggauss(NODES)
