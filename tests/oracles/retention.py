"""Retention: Sun et al. (2023), the parallel form of Eq. 5 with the decays and norm of Eq. 8."""

from functools import partial

import numpy as np

from oracles.layers import Mixer, run_mixers
from oracles.parts import Vector, affine, layer_norm, silu


def turn(x: Vector, position: int) -> Vector:
    """x e^{i n theta}, as complex numbers."""
    half = len(x) // 2
    theta = np.array([10_000.0 ** (-i / half) for i in range(half)])
    return (x[:half] + 1j * x[half:]) * np.exp(1j * position * theta)


class Retention(Mixer):
    """A sum over all steps of the episode, weighted by the distance."""

    def forget(self) -> None:
        """No step was read."""
        self.read_before: list[tuple[Vector, Vector]] = []

    def read(self, x: Vector) -> Vector:
        """What the layer adds."""
        w, size = self.weights, self.weights.head_size
        x = layer_norm(w.norm, x)
        query, key, value = np.split(affine(w.inputs, x), 3)
        self.read_before.append((key, value))
        now, heads = len(self.read_before) - 1, []
        for h in range(w.num_heads):
            part = slice(h * size, (h + 1) * size)
            keep = 1.0 - 1.0 / (w.shortest * 2**h)
            y = np.zeros(size)
            for then, (key, value) in enumerate(self.read_before):
                if w.rotation:
                    product = turn(query[part], now) @ np.conj(turn(key[part], then))
                    score = np.real(product)
                else:
                    score = query[part] @ key[part]
                y += keep ** (now - then) * score / np.sqrt(size) * value[part]
            heads.append(layer_norm(w.output.norm, y))
        gate = silu(affine(w.output.gate, x))
        return affine(w.output.output, np.concatenate(heads) * gate)


run = partial(run_mixers, Retention)
