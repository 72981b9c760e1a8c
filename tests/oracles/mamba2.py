"""Mamba-2: Dao and Gu (2024), Eq. 1-2 with one number A for a head, and Figure 6."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, convolve, layer_norm, numbers, rms_norm, silu


class Mamba2(Mixer):
    """The recurrence of every head, with H written out."""

    def forget(self) -> None:
        """H_0 = 0, and nothing before the first observation."""
        w = self.weights
        self.state = [np.zeros((w.head_size, w.state_size)) for _ in range(w.num_heads)]
        self.seen: list[Vector] = []

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w, size = self.weights, self.weights.head_size
        u = layer_norm(w.norm, x)
        self.seen.append(affine(w.inputs, u))
        read = self.seen[-1] if w.convolution is None else convolve(w.convolution, self.seen)
        read = silu(read)
        wide = size * w.num_heads
        xs, b, c = read[:wide], read[wide : wide + w.state_size], read[wide + w.state_size :]
        dt = np.log1p(np.exp(affine(w.rates, u)))
        heads = []
        for h in range(w.num_heads):
            x_h = xs[h * size : (h + 1) * size]
            a = np.exp(-dt[h] * np.exp(numbers(w.log_rate)[h]))
            self.state[h] = a * self.state[h] + np.outer(dt[h] * x_h, b)
            heads.append(self.state[h] @ c + numbers(w.skip)[h] * x_h)
        y = np.concatenate(heads) * silu(affine(w.gate, u))
        return affine(w.output, rms_norm(w.output_norm, y))


run = partial(run_mixers, Mamba2)
