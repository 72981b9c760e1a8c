"""The minLSTM: Feng et al. (2024), with the normalisation of section 3.2.3."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.min_gru import positive
from oracles.parts import Vector, affine, layer_norm, sigmoid


class MinLSTM(Mixer):
    """The recurrence, one number after the other."""

    def read(self, x: Vector) -> Vector:
        """f_t, i_t, h~_t, h_t."""
        w = self.weights
        f, i, candidate = np.split(affine(w.inputs, layer_norm(w.norm, x)), 3)
        f, i = sigmoid(f), sigmoid(i)
        if w.normalised:
            f, i = f / (f + i), i / (f + i)
        if w.candidate == "positive":
            candidate = positive(candidate)
        self.h = f * self.h + i * candidate
        return affine(w.output, self.h)


run = partial(run_mixers, MinLSTM)
