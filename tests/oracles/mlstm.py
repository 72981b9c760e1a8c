"""The mLSTM: Beck et al. (2024), Eq. 19-27 as they stand, without a stabiliser."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, convolve, layer_norm, sigmoid, silu


class MLSTM(Mixer):
    """C and n of every head; m is here for the epsilon alone."""

    def forget(self) -> None:
        """C_0 = 0 and n_0 = 0, and nothing before the first observation."""
        w = self.weights
        self.c = [np.zeros((w.head_size, w.head_size)) for _ in range(w.num_heads)]
        self.n = [np.zeros(w.head_size) for _ in range(w.num_heads)]
        self.m = np.zeros(w.num_heads)
        self.seen: list[Vector] = []

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w, size = self.weights, self.weights.head_size
        x = layer_norm(w.norm, x)
        self.seen.append(x)
        seen = x if w.convolution is None else silu(convolve(w.convolution, self.seen))
        query, key = np.split(affine(w.reads, seen), 2)
        value = affine(w.values, x)
        of_i, of_f = np.split(affine(w.gates, x), 2)
        i, f = np.exp(of_i), sigmoid(of_f)
        heads = []
        for h in range(w.num_heads):
            part = slice(h * size, (h + 1) * size)
            q, k, v = query[part], key[part] / np.sqrt(size), value[part]
            self.c[h] = f[h] * self.c[h] + i[h] * np.outer(v, k)
            self.n[h] = f[h] * self.n[h] + i[h] * k
            self.m[h] = max(np.log(f[h]) + self.m[h], of_i[h], 0.0)
            below = max(abs(self.n[h] @ q), 1.0) + w.epsilon * np.exp(self.m[h])
            heads.append(layer_norm(w.output.norm, self.c[h] @ q / below))
        o = sigmoid(affine(w.output.gate, x))
        return affine(w.output.output, o * np.concatenate(heads))


run = partial(run_mixers, MLSTM)
