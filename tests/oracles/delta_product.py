"""The delta product: Siems et al. (2025), gated, with Householder matrices multiplied out."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, convolve, layer_norm, numbers, rms_norm, sigmoid, silu


class Product(Mixer):
    """C_t = a_t C_{t-1} A_t + B_t, with A_t the product of all Householder matrices of a step."""

    def forget(self) -> None:
        """C_0 = 0, and nothing before the first observation."""
        w = self.weights
        self.c = [np.zeros((w.head_size, w.head_size)) for _ in range(w.num_heads)]
        self.seen: list[Vector] = []

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w, n = self.weights, self.weights.num_householder
        x = layer_norm(w.norm, x)
        self.seen.append(affine(w.inputs, x))
        projected = self.seen[-1] if w.convolution is None else convolve(w.convolution, self.seen)
        query, *others = np.split(silu(projected), 1 + 2 * n)
        of_a, *of_b = np.split(affine(w.rates, x), 1 + n)
        largest = 2.0 if w.negative_eigenvalues else 1.0
        heads = []
        for h in range(w.num_heads):
            part = slice(h * w.head_size, (h + 1) * w.head_size)
            unit = [u[part] / np.sqrt(u[part] @ u[part] + 1e-6) for u in (query, *others[:n])]
            a = np.exp(-np.exp(numbers(w.log_rate)[h]) * np.log1p(np.exp(of_a[h])))
            kept = (1.0 if w.decay == "none" else a) * np.eye(w.head_size)
            added = np.zeros((w.head_size, w.head_size))
            for k, v, of in zip(unit[1:], others[n:], of_b, strict=True):
                b = largest * sigmoid(of[h])
                householder = np.eye(w.head_size) - b * np.outer(k, k)
                kept = kept @ householder
                added = added @ householder + b * np.outer(v[part], k)
            self.c[h] = self.c[h] @ kept + added
            heads.append(rms_norm(w.output.norm, self.c[h] @ unit[0]))
        gate = silu(affine(w.output.gate, x))
        return affine(w.output.output, np.concatenate(heads) * gate)


run = partial(run_mixers, Product)
