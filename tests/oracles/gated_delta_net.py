"""The gated delta network: Yang et al. (2024), Gated Delta Networks, section 3.1 and Figure 1."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, convolve, layer_norm, numbers, rms_norm, sigmoid, silu


class GatedDelta(Mixer):
    """The gated delta rule, head by head, with C written out."""

    def forget(self) -> None:
        """C_0 = 0, and nothing before the first observation."""
        w = self.weights
        self.c = [np.zeros((w.head_size, w.head_size)) for _ in range(w.num_heads)]
        self.seen: list[Vector] = []

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w = self.weights
        x = layer_norm(w.norm, x)
        self.seen.append(affine(w.inputs, x))
        projected = self.seen[-1] if w.convolution is None else convolve(w.convolution, self.seen)
        query, key, value = np.split(silu(projected), 3)
        of_a, of_b = np.split(affine(w.rates, x), 2)
        heads = []
        for h in range(w.num_heads):
            part = slice(h * w.head_size, (h + 1) * w.head_size)
            q, k, v = query[part], key[part], value[part]
            q, k = (u / np.sqrt(u @ u + 1e-6) for u in (q, k))
            a = np.exp(-np.exp(numbers(w.log_rate)[h]) * np.log1p(np.exp(of_a[h])))
            a = 1.0 if w.decay == "none" else a
            b = (2.0 if w.negative_eigenvalues else 1.0) * sigmoid(of_b[h])
            erased = np.eye(w.head_size) - b * np.outer(k, k)
            self.c[h] = a * self.c[h] @ erased + b * np.outer(v, k)
            heads.append(rms_norm(w.output.norm, self.c[h] @ q))
        gate = silu(affine(w.output.gate, x))
        return affine(w.output.output, np.concatenate(heads) * gate)


run = partial(run_mixers, GatedDelta)
