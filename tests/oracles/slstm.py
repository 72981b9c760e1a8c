"""The sLSTM: Beck et al. (2024), Eq. 8-14 as they stand, without a stabiliser."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, convolve, layer_norm, numbers, sigmoid, silu


class SLSTM(Mixer):
    """c, n and h of every head."""

    def forget(self) -> None:
        """Zeros, and nothing before the first observation."""
        heads, size, _ = self.weights.recurrent.shape
        self.c, self.n, self.h = (np.zeros((heads, size)) for _ in range(3))
        self.seen: list[Vector] = []

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w = self.weights
        x = layer_norm(w.norm, x)
        self.seen.append(x)
        seen = x if w.convolution is None else silu(convolve(w.convolution, self.seen))
        z, o = np.split(affine(w.inputs, x), 2)
        i, f = np.split(affine(w.gates, seen), 2)
        z, o, i, f = (u.reshape(self.c.shape) for u in (z, o, i, f))
        heads = []
        for head, weight in enumerate(numbers(w.recurrent)):
            r_z, r_o, r_i, r_f = np.split(weight.T @ self.h[head], 4)
            of_f = f[head] + r_f
            kept = sigmoid(of_f) if w.forget == "sigmoid" else np.exp(of_f)
            added = np.exp(i[head] + r_i)
            self.c[head] = kept * self.c[head] + added * np.tanh(z[head] + r_z)
            self.n[head] = kept * self.n[head] + added
            self.h[head] = sigmoid(o[head] + r_o) * self.c[head] / self.n[head]
            heads.append(layer_norm(w.output_norm, self.h[head]))
        return affine(w.output, np.concatenate(heads))


run = partial(run_mixers, SLSTM)
