"""The linear recurrent unit: Orvieto et al. (2023)."""

from functools import partial
from typing import Any

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, gelu, layer_norm, numbers, sigmoid


class LRU(Mixer):
    """The recurrence of complex numbers, with B and C written out."""

    def read(self, x: Vector) -> Vector:
        """h_t and y_t."""
        w = self.weights
        x = layer_norm(w.norm, x)
        eigenvalues = np.exp(-np.exp(numbers(w.nu)) + 1j * np.exp(numbers(w.theta)))
        b, c = matrices(w)
        self.h = eigenvalues * self.h + np.exp(numbers(w.log_gamma)) * (b @ x)
        return activated(w, (c @ self.h).real + numbers(w.skip) * x)


def matrices(weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """B and C, from the real matrices [Re B' | Im B'] and [Re C'; -Im C']."""
    re_b, im_b = np.split(numbers(weights.input_matrix), 2, axis=1)
    re_c, im_c = np.split(numbers(weights.output_matrix), 2, axis=0)
    return (re_b + 1j * im_b).T, (re_c - 1j * im_c).T


def activated(weights: Any, y: Vector) -> Vector:
    """The operations after y in the authors' layers."""
    if weights.activation == "none":
        return y
    a = gelu(y)
    if weights.activation == "half_glu":
        return a * sigmoid(affine(weights.gate, a))
    if weights.activation == "full_glu":
        value, opened = np.split(affine(weights.gate, a), 2)
        return value * sigmoid(opened)
    return a


run = partial(run_mixers, LRU)
