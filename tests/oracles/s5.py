"""S5: Smith et al. (2023), in steps of zero-order hold; half of each conjugate pair."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.lru import activated, matrices
from oracles.parts import Vector, layer_norm, numbers


class S5(Mixer):
    """The recurrence with all conjugates written out, so that the sum is real by itself."""

    def read(self, x: Vector) -> Vector:
        """h_t and y_t."""
        w = self.weights
        x = layer_norm(w.norm, x)
        real = numbers(w.real)
        real = np.array([min(r, -1e-4) for r in real]) if w.bounded else real
        rates = both(real + 1j * numbers(w.imag))
        b, c = matrices(w)
        b, c = both(b), both(c.T).T
        step = np.tile(np.exp(numbers(w.log_step)), 2)
        kept = np.exp(rates * step)
        self.h = kept * self.h + (kept - 1.0) / rates * (b @ x)
        y = c @ self.h
        assert np.max(np.abs(y.imag)) <= 1e-9 * (1.0 + np.max(np.abs(y.real)))
        return activated(w, y.real + numbers(w.skip) * x)


def both(half: np.ndarray) -> np.ndarray:
    """With the conjugates."""
    return np.concatenate([half, half.conj()])


run = partial(run_mixers, S5)
