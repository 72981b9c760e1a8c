"""The linear transformer: Pramanik (2023), Algorithm 4; Katharopoulos et al. (2020), Eq. 16-20."""

from typing import Any

import numpy as np

from oracles.layers import Mixer, embedder, equations, run_layers
from oracles.parts import Vector, affine, layer_norm, relu


def feature(x: Vector) -> Vector:
    """phi(x) = elu(x) + 1."""
    return np.array([value + 1.0 if value > 0 else np.exp(value) for value in x])


class LinearAttention(Mixer):
    """Algorithm 4, head by head, with C_t written out."""

    def forget(self) -> None:
        """Lines 1-3: C_0 = 0, s_0 = 0."""
        heads, head = self.weights.num_heads, self.weights.head_size
        self.c = [np.zeros((head, head)) for _ in range(heads)]
        self.s = [np.zeros(head) for _ in range(heads)]

    def read(self, x: Vector) -> Vector:
        """Lines 4-9."""
        w = self.weights
        x = x if w.norm is None else layer_norm(w.norm, x)
        query, key, value = np.split(affine(w.inputs, x), 3)
        heads = []
        for h in range(w.num_heads):
            part = slice(h * w.head_size, (h + 1) * w.head_size)
            k, q, v = feature(key[part]), feature(query[part]), value[part]
            self.c[h] = self.c[h] + np.outer(v, k)
            self.s[h] = self.s[h] + k
            heads.append(self.c[h] @ q / (self.s[h] @ q + w.epsilon))
        return affine(w.output, np.concatenate(heads))


def run(
    memory: Any, xs: np.ndarray, starts: np.ndarray, gate: str = "gru", norm: str = "before"
) -> np.ndarray:
    """The layer of GTrXL around Algorithm 4, or that of the canonical transformer."""
    attentions = [LinearAttention(layer.attention) for layer in memory.layers]
    layers = equations(memory, gate, norm)
    return run_layers(attentions, layers, embedder(memory, relu), xs, starts)
