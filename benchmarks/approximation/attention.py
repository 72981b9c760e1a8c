"""Random keys, values and gates: the error of AReLiT's attention output."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from benchmarks.approximation.draws import Grams, grams
from benchmarks.approximation.kernels import Kernel
from benchmarks.approximation.tables import TIME, Row


class Gates(NamedTuple):
    """The distribution of the gates."""

    label: str
    """the label in pictures"""
    constant: float | None = None
    """one gate for all"""
    mean: float = 0.0
    """mean of the normal number whose logistic function is a gate"""
    spread: float = 1.0
    """its standard deviation"""


REGIMES: tuple[Gates, ...] = (
    Gates("constant 0.02", 0.02),
    Gates("constant 0.1", 0.1),
    Gates("constant 0.3", 0.3),
    Gates("constant 0.9", 0.9),
    Gates("near 0", mean=-3.0),
    Gates("around 1/2", mean=0.0),
    Gates("near 1", mean=3.0),
    Gates("either end", mean=0.0, spread=3.0),
    Gates("mostly 0, at times 1", mean=-3.0, spread=3.0),
)
"""Constant gates, and gates drawn anew for every step and entry."""


class Inputs(NamedTuple):
    """The inputs of a memory in an episode, and the query that reads it at the end."""

    values: np.ndarray
    """[time, head]"""
    keys: np.ndarray
    """[time, features]"""
    beta: np.ndarray
    """gates of the values, [time, head]"""
    gamma: np.ndarray
    """gates of the keys, [time, features]"""
    query: np.ndarray
    """[features]"""


class Episode(NamedTuple):
    """The gated inputs of a memory at the end of an episode, and the query that reads it."""

    values: np.ndarray
    """l_m of Eq. 4.11, [time, head]"""
    keys: np.ndarray
    """m_n of Eq. 4.12, [time, features]"""
    match: np.ndarray
    """m_n . q, not negative, [time]"""
    products: Grams
    """inner products of the two, each [time, time]"""

    def attend(self, delta: np.ndarray) -> np.ndarray:
        """a_t with an approximate delta, or the true a_t with the identity."""
        return self.values.T @ (delta @ self.match) / np.sum(self.match)


def draw_inputs(gates: Gates, time: int, random: np.random.Generator) -> Inputs:
    """Features of normal numbers, as in Algorithm 6 with head size 32 and eta = 4."""
    head, eta = 32, 4

    def feature(*lead: int) -> np.ndarray:
        parts = (np.maximum(random.standard_normal((*lead, size)), 0) for size in (eta, head))
        return _outer(*parts).reshape(*lead, eta * head)

    query = feature()
    while not query.any():
        query = feature()
    keys, values = feature(time), random.standard_normal((time, head))
    if gates.constant is not None:
        beta, gamma = np.full(head, gates.constant), np.full(eta * head, gates.constant)
        beta, gamma = np.tile(beta, (time, 1)), np.tile(gamma, (time, 1))
    else:

        def logistic(size: int) -> np.ndarray:
            normal = random.standard_normal((time, size))
            return 1 / (1 + np.exp(-(gates.mean + gates.spread * normal)))

        beta = logistic(head)
        gamma = _outer(logistic(eta), logistic(head)).reshape(time, -1)
    return Inputs(values, keys, beta, gamma, query)


def left_of(given: Inputs) -> Episode:
    """How much of the inputs the gates let in, and how much of it is left at the end."""
    keys, values = _left(given.gamma) * given.keys, _left(given.beta) * given.values
    return Episode(values, keys, keys @ given.query, grams(values, keys))


class AttentionErrors(NamedTuple):
    """Root mean squares over episodes, relative to the true state or output."""

    state: float
    """of C_t, Frobenius norm"""
    attention: float
    """of a_t"""
    up_to_scale: float
    """of a_t times the one factor that minimises the error over all episodes"""

    @classmethod
    def of(cls, sums: np.ndarray) -> "AttentionErrors":
        """Computes the errors from sums over episodes.

        Args:
            sums: of |C|^2, |C~ - C|^2, |a|^2, a . a~ and |a~|^2, [5].
        """
        state, missed, true, mixed, found = sums
        return cls(
            float(np.sqrt(max(missed, 0) / state)),
            float(np.sqrt(max(true - 2 * mixed + found, 0) / true)),
            float(np.sqrt(max(1 - mixed**2 / (true * found), 0))),
        )


def attention_rows(
    rs: Sequence[int],
    draws: int,
    seed: int,
    errors: Callable[[int, Sequence[Inputs], Sequence[Episode]], dict[str, AttentionErrors]],
    log: Callable[[str], None],
) -> list[Row]:
    """Errors of C_t and a_t for each r and kind of gates, at times drawn from 20..100."""
    rows: list[Row] = []
    for gates in REGIMES:
        log(f"attention, gates {gates.label}")
        random = np.random.default_rng(seed)
        times = random.integers(20, TIME + 1, draws)
        inputs = [draw_inputs(gates, int(time), random) for time in times]
        episodes = [left_of(given) for given in inputs]
        for r in rs:
            rows.extend(
                {"gates": gates.label, "r": r, "set": name} | error._asdict()
                for name, error in errors(r, inputs, episodes).items()
            )
    return rows


def attention_errors(
    kernels: Mapping[str, Kernel], r: int, episodes: Sequence[Episode]
) -> dict[str, AttentionErrors]:
    """The errors of every kernel on the same episodes, by the kernel's name."""
    return {name: _attention_errors(kernel, r, episodes) for name, kernel in kernels.items()}


def _attention_errors(kernel: Kernel, r: int, episodes: Sequence[Episode]) -> AttentionErrors:
    sums = np.zeros(5)
    for episode in episodes:
        delta = kernel.matrix(r, len(episode.match))
        wrong = delta - np.eye(len(delta))
        values, keys = episode.products
        true, found = episode.attend(np.eye(len(delta))), episode.attend(delta)
        state, missed = np.sum(keys * values), np.sum((wrong @ keys) * (values @ wrong))
        sums += (state, missed, true @ true, true @ found, found @ found)
    return AttentionErrors.of(sums)


def _left(gates: np.ndarray) -> np.ndarray:
    """How much the gates let in at each step and keep until the last one, [time, entries]."""
    after = np.vstack([1 - gates[1:], np.ones((1, gates.shape[1]))])
    return gates * np.cumprod(after[::-1], axis=0)[::-1]


def _outer(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., :, None] * b[..., None, :]
