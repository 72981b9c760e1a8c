"""The minGRU: Feng et al. (2024)."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, layer_norm, sigmoid


class MinGRU(Mixer):
    """The recurrence, one number after the other."""

    def read(self, x: Vector) -> Vector:
        """z_t, h~_t, h_t."""
        w = self.weights
        z, candidate = np.split(affine(w.inputs, layer_norm(w.norm, x)), 2)
        z = sigmoid(z)
        if w.candidate == "positive":
            candidate = positive(candidate)
        self.h = (1.0 - z) * self.h + z * candidate
        return affine(w.output, self.h)


def positive(candidate: Vector) -> Vector:
    """g, of the version in logarithms."""
    return np.array([a + 0.5 if a >= 0 else sigmoid(a) for a in candidate])


run = partial(run_mixers, MinGRU)
