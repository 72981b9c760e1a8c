"""The RG-LRU: De et al. (2024), Eq. 1-4, in its recurrent block."""

from functools import partial
from typing import Any

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, convolve, gelu, layer_norm, numbers, sigmoid


class RGLRU(Mixer):
    """The block, one number after the other."""

    def forget(self) -> None:
        """h_0 = 0, and nothing before the first observation."""
        self.h: Any = 0.0
        self.seen: list[Vector] = []

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w = self.weights
        u, v = np.split(affine(w.inputs, layer_norm(w.norm, x)), 2)
        self.seen.append(u)
        if w.convolution is not None:
            u = convolve(w.convolution, self.seen)
        r, i = np.split(sigmoid(_gates(w.gates, u)), 2)
        a = sigmoid(numbers(w.decay)) ** (8.0 * r)
        self.h = a * self.h + np.sqrt(1.0 - a**2) * (i * u)
        return affine(w.output, self.h * gelu(v))


def _gates(gates: Any, u: Vector) -> Vector:
    """[u W_r + b_r | u W_i + b_i], of matrices whose blocks are zero off the diagonal if it has."""
    if gates.weight.ndim == 2:
        return affine(gates, u)
    blocks = numbers(gates.weight)
    count, part, _ = blocks.shape
    whole = np.zeros((2, count * part, count * part))
    for rows, block in zip(np.split(np.arange(count * part), count), blocks, strict=True):
        whole[0][np.ix_(rows, rows)] = block[:, :part]
        whole[1][np.ix_(rows, rows)] = block[:, part:]
    return np.concatenate([u @ whole[0], u @ whole[1]]) + numbers(gates.bias)


run = partial(run_mixers, RGLRU)
