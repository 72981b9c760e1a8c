"""ReLiT: Pramanik (2023), Algorithm 5, and the differences of the authors' published code."""

from typing import Any, NamedTuple

import numpy as np

from oracles.layers import embedder, equations, run_layers
from oracles.parts import (
    Vector,
    affine,
    layer_norm,
    numbers,
    relu,
    sigmoid,
)


class Features(NamedTuple):
    """Keys, queries, values and gates of one head at one time step."""

    k: Vector
    q: Vector
    v: Vector
    beta: Vector
    gamma: Vector


def features(weights: Any, x: Vector, h: int, query: str) -> Features:
    """Algorithm 5, lines 4-11, for head h; flatten(p (x) k) has eta outermost."""
    heads, head, eta = weights.num_heads, weights.head_size, weights.eta
    inputs = affine(weights.inputs, x).reshape(5, heads, head)
    key, u, value, beta, gamma = inputs[:, h]
    maps = affine(weights.maps, x).reshape(-1, heads, eta)
    if query == "single":
        p1, p2, p3 = maps[:, h]
    else:
        p1, p3 = maps[:, h]
        p2 = numbers(weights.query_map)[h].T @ u + numbers(weights.query_map_bias)[h]
        u = numbers(weights.query_again)[h].T @ u + numbers(weights.query_again_bias)[h]
    return Features(
        k=np.outer(relu(p1), relu(key)).flatten(),
        q=np.outer(relu(p2), relu(u)).flatten(),
        v=value,
        beta=sigmoid(beta),
        gamma=np.outer(sigmoid(p3), sigmoid(gamma)).flatten(),
    )


class GatedAttention:
    """Algorithm 5, head by head, with C_t written out."""

    def __init__(self, weights: Any, decay: str, query: str):
        self.weights = weights
        self.decay = decay
        self.query = query
        self.forget()

    def forget(self) -> None:
        """Lines 1-3: C_0 = 0, s_0 = 0."""
        f = self.weights.features
        self.c = [np.zeros((f.head_size, f.eta * f.head_size)) for _ in range(f.num_heads)]
        self.s = [np.zeros(f.eta * f.head_size) for _ in range(f.num_heads)]

    def read(self, x: Vector) -> Vector:
        """Lines 12-14."""
        w = self.weights
        x = layer_norm(w.norm, x)
        heads = []
        for h in range(w.features.num_heads):
            f = features(w.features, x, h, self.query)
            if self.decay == "separate":
                keep = np.outer(1.0 - f.beta, 1.0 - f.gamma)
            else:
                keep = 1.0 - np.outer(f.beta, f.gamma)
            self.c[h] = keep * self.c[h] + np.outer(f.beta * f.v, f.gamma * f.k)
            self.s[h] = (1.0 - f.gamma) * self.s[h] + f.gamma * f.k
            heads.append(self.c[h] @ f.q / (self.s[h] @ f.q + w.epsilon))
        return affine(w.output, np.concatenate(heads))


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    decay: str = "separate",
    query: str = "single",
    embedding_relu: bool = True,
) -> np.ndarray:
    """Algorithm 5 inside the layer of GTrXL."""
    attentions = [GatedAttention(layer.attention, decay, query) for layer in memory.layers]
    embed = embedder(memory, relu) if embedding_relu else embedder(memory)
    return run_layers(attentions, equations(memory, "gru", "before"), embed, xs, starts)
