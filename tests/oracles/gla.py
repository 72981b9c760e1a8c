"""Gated linear attention: Yang et al. (2023), Eq. 3 and section 4.4."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, layer_norm, rms_norm, sigmoid, silu


class GLA(Mixer):
    """S_t = diag(alpha_t) S_{t-1} + k_t' v_t, keys by values as the paper has it."""

    def forget(self) -> None:
        """S_0 = 0."""
        w = self.weights
        self.s = [np.zeros((w.key_size, w.head_size)) for _ in range(w.num_heads)]

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w = self.weights
        x = layer_norm(w.norm, x)
        read, keyed = affine(w.inputs, x), w.num_heads * w.key_size
        query, key, value = read[:keyed], read[keyed : 2 * keyed], read[2 * keyed :]
        alpha = sigmoid(affine(w.keep, affine(w.narrow, x))) ** (1.0 / 16.0)
        heads = []
        for h in range(w.num_heads):
            keys = slice(h * w.key_size, (h + 1) * w.key_size)
            values = slice(h * w.head_size, (h + 1) * w.head_size)
            self.s[h] = np.diag(alpha[keys]) @ self.s[h] + np.outer(key[keys], value[values])
            heads.append(rms_norm(w.output.norm, query[keys] @ self.s[h]))
        gate = silu(affine(w.output.gate, x))
        return affine(w.output.output, np.concatenate(heads) * gate)


run = partial(run_mixers, GLA)
