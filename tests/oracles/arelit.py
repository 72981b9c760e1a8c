"""AReLiT: Pramanik (2023), Algorithm 6, and the differences of the authors' published code."""

from typing import Any

import numpy as np

from oracles.layers import embedder, equations, run_layers
from oracles.parts import Vector, affine, layer_norm, relu
from oracles.relit import features


def angles(frequencies: str, r: int) -> np.ndarray:
    """omega_k: Algorithm 6, line 11; the published code; half a wave; the whole circle."""
    if frequencies == "printed":
        return np.array([2 * np.pi * k / r for k in range(r + 1)])
    if frequencies == "code":
        return np.linspace(-np.pi, np.pi, r)
    if frequencies in ("full_wave", "odd_wave"):
        shift = 0.5 if frequencies == "odd_wave" else 0.0
        return np.array([2 * np.pi * (k + shift) / (r + 1) for k in range(r + 1)])
    return np.array([np.pi * k / r for k in range(r + 1)])


def factor(frequencies: str, r: int, scale: str) -> float:
    """The readout's factor: 2 / r of Eq. 4.19, 1 / (2 r) of Eq. 4.22, or the code's."""
    if scale == "printed":
        return 1 / (2 * r)
    if frequencies == "code":
        return 1 / (2 * r) if scale == "code" else 2 / max(1, r - 1)
    if scale == "code":
        return 1 / (2 * (r + 1))
    return 2 / (r + 1) if frequencies in ("full_wave", "odd_wave") else 2 / r


class ApproximateAttention:
    """Algorithm 6, head by head, one vector after another.

    With the whole circle of frequencies each vector is complex, exp(i omega t) instead of the
    cosine, and weighs one half: a frequency and its negative are one vector of cosines and one of
    sines.
    """

    def __init__(self, weights: Any, r: int, frequencies: str, scale: str, tick: str):
        self.weights = weights
        self.omega = angles(frequencies, r)
        self.ends_weigh_half = frequencies == "half_wave"
        self.whole_circle = frequencies in ("full_wave", "odd_wave")
        self.factor = factor(frequencies, r, scale)
        self.tick_is_carried = tick == "carried"
        self.t = 0
        self.forget()
        self.t = 1 if self.tick_is_carried else 0

    def forget(self) -> None:
        """Line 1; the published code's tick continues."""
        f = self.weights.features
        size = f.eta * f.head_size
        count = len(self.omega)
        self.k = [[np.zeros(size) for _ in range(count)] for _ in range(f.num_heads)]
        self.v = [[np.zeros(f.head_size) for _ in range(count)] for _ in range(f.num_heads)]
        self.s = [np.zeros(size) for _ in range(f.num_heads)]
        if not self.tick_is_carried:
            self.t = 0

    def read(self, x: Vector) -> Vector:
        """Lines 2-18."""
        w = self.weights
        x = layer_norm(w.norm, x)
        self.t += 1
        return affine(
            w.output, np.concatenate([self._head(h, x) for h in range(w.features.num_heads)])
        )

    def _head(self, h: int, x: Vector) -> Vector:
        f = features(self.weights.features, x, h, "single")
        self.s[h] = (1.0 - f.gamma) * self.s[h] + f.gamma * f.k
        above = np.zeros(len(f.v))
        for i, omega in enumerate(self.omega):
            wave = np.exp(1j * omega * self.t) if self.whole_circle else np.cos(omega * self.t)
            self.v[h][i] = self.v[h][i] * (1.0 - f.beta) + wave * (f.beta * f.v)
            self.k[h][i] = self.k[h][i] * (1.0 - f.gamma) + wave * (f.gamma * f.k)
            end = i in (0, len(self.omega) - 1)
            half = self.whole_circle or (self.ends_weigh_half and end)
            read = np.real(self.v[h][i] * (np.conj(self.k[h][i]) @ f.q))
            above += (0.5 if half else 1.0) * read
        return above / (self.s[h] @ f.q / self.factor + self.weights.epsilon)


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    r: int,
    frequencies: str = "half_wave",
    scale: str = "derived",
    tick: str = "episode",
) -> np.ndarray:
    """Algorithm 6 inside the layer of GTrXL."""
    attentions = [
        ApproximateAttention(layer.attention, r, frequencies, scale, tick)
        for layer in memory.layers
    ]
    layers = equations(memory, "gru", "before")
    return run_layers(attentions, layers, embedder(memory, relu), xs, starts)
