"""Softmax attention over an explicit list of past inputs, fully recomputed at each step."""

from typing import Any

import numpy as np

from oracles.parts import Vector, affine, layer_norm, numbers, sinusoid, softmax


class WindowedAttention:
    """Multi-head attention of one layer; keeps what the layer has read in this episode.

    Without relative positions: Vaswani et al. (2017), Eq. 1, over the last inputs. With them: Dai
    et al. (2019), section 3.3,

        A_tj = q_t . k_j + q_t . W_R R_{t-j} + u . k_j + v . W_R R_{t-j}

    with u and v one pair for all layers.
    """

    def __init__(self, weights: Any, owner_of_biases: Any, query_norm: bool = True):
        self.weights = weights
        self.relative = weights.distance is not None
        if self.relative:
            self.u = numbers(owner_of_biases.content_bias)
            self.v = numbers(owner_of_biases.distance_bias)
        self.query_norm = query_norm
        self.reach = weights.window
        self.past: list[Vector] = []

    def forget(self) -> None:
        """An empty list."""
        self.past = []

    def read(self, x: Vector) -> Vector:
        """Attends to the last `reach` inputs and to this one, head by head."""
        self.past.append(x)
        w = self.weights
        t = len(self.past) - 1
        seen = range(max(0, t - self.reach), t + 1)
        q = affine(w.query, self._normed(x) if self.query_norm else x)
        keys = {j: affine(w.key, self._normed(self.past[j])) for j in seen}
        values = {j: affine(w.value, self._normed(self.past[j])) for j in seen}
        heads = []
        for h in range(w.num_heads):
            part = slice(h * w.head_size, (h + 1) * w.head_size)
            scores = [self._score(h, part, q, keys[j], t - j) for j in seen]
            weighted = zip(softmax(scores), seen, strict=True)
            heads.append(sum(weight * values[j][part] for weight, j in weighted))
        return affine(w.output, np.concatenate(heads))

    def _score(self, h: int, part: slice, q: Vector, key: Vector, distance: int) -> float:
        score = q[part] @ key[part]
        if self.relative:
            far = affine(self.weights.distance, sinusoid(distance, len(self.past[0])))[part]
            score += q[part] @ far + self.u[h] @ key[part] + self.v[h] @ far
        return score / np.sqrt(self.weights.head_size)

    def _normed(self, x: Vector) -> Vector:
        return x if self.weights.norm is None else layer_norm(self.weights.norm, x)


def windows(memory: Any, query_norm: bool = True) -> list[WindowedAttention]:
    """One for each layer; the first has the biases of all."""
    owner = memory.layers[0].attention
    return [WindowedAttention(layer.attention, owner, query_norm) for layer in memory.layers]
