"""The stable Hadamard memory: Le et al. (2024), with a fixed sequence of addresses."""

from functools import partial
from typing import Any

import numpy as np

from oracles.layers import run_mixers
from oracles.parts import Vector, affine, layer_norm, numbers, relu, sigmoid


class SHM:
    """The recurrence, one number of the matrix after the other."""

    def __init__(self, weights: Any):
        self.weights = weights
        self.theta, self.sequence = numbers(weights.theta), np.asarray(weights.sequence)
        self.forget()

    def forget(self) -> None:
        """M_0 = 0, at the first address."""
        size = self.theta.shape[1]
        self.m, self.t = np.zeros((size, size)), 0

    def read(self, x: Vector) -> Vector:
        """C_t, U_t, M_t, y_t."""
        w = self.weights
        x = layer_norm(w.norm, x)
        q, k, v, v_c = np.split(affine(w.inputs, x), 4)
        k = relu(k) / (sum(relu(k)) + w.epsilon)
        q = relu(q) / (sum(relu(q)) + w.epsilon)
        eta = sigmoid(affine(w.rate, x)[0])
        row = self.theta[self.sequence[self.t % len(self.sequence)]]
        for i in range(len(v)):
            for j in range(len(k)):
                c = 1.0 + np.tanh(row[i] * v_c[j])
                self.m[i, j] = c * self.m[i, j] + eta * v[i] * k[j]
        self.t += 1
        return affine(w.output, self.m @ q + affine(w.skip, x))


run = partial(run_mixers, SHM)
