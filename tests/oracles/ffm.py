"""Fast and forgetful memory: Morad et al. (2023)."""

import cmath
from functools import partial
from typing import Any

import numpy as np

from oracles.layers import run_mixers
from oracles.parts import Vector, affine, layer_norm, numbers, sigmoid


class FFM:
    """The cell: every trace in every context, one number after another."""

    def __init__(self, weights: Any):
        self.weights = weights
        self.a, self.omega = numbers(weights.decay), numbers(weights.frequency)
        self.forget()

    def forget(self) -> None:
        """S_0 = 0."""
        self.s: Any = np.zeros((len(self.a), len(self.omega)), complex)

    def read(self, x: Vector) -> Vector:
        """x~_t, S_t, z_t, y_t."""
        w = self.weights
        x = layer_norm(w.norm, x)
        of_1, of_2 = np.split(affine(w.inputs, x), 2)
        of_4, of_5 = np.split(affine(w.skip, x), 2)
        for j, a in enumerate(self.a):
            for k, omega in enumerate(self.omega):
                g = cmath.exp(complex(-abs(a), omega))
                self.s[j, k] = g * self.s[j, k] + of_1[j] * sigmoid(of_2[j])
        z = affine(w.mix, np.concatenate([self.s.real.ravel(), self.s.imag.ravel()]))
        z = (z - z.mean()) / np.sqrt(z.var() + 1e-5)
        return z * sigmoid(of_4) + of_5 * (1.0 - sigmoid(of_4))


run = partial(run_mixers, FFM)
