"""Transformer layers around any attention, one observation at a time, in double precision."""

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.gru import cell
from oracles.parts import Attention, Vector, affine, gru_gate, layer_norm, net, numbers, relu


class LayerEquation:
    """A layer's output from its input and its attention's output; keeps the gates' states.

    norm "before": Parisotto et al. (2020), section 3.2. "after": Vaswani et al. (2017), Figure 1.
    "none": Bachlechner et al. (2020), Eq. 6. "around", the inner residual connection, the crossed
    states and the GRU over time: the published code of Makkink (2021).
    """

    def __init__(
        self, layer: Any, gate: str, norm: str, inner: bool = False, crossed: bool = False
    ):
        self.layer, self.gate, self.norm = layer, gate, norm
        self.inner, self.crossed = inner, crossed
        self.forget()

    def forget(self) -> None:
        """No h in either gate."""
        self.h: dict[str, Vector] = {}

    def read(self, x: Vector, attended: Vector) -> Vector:
        """The layer's output."""
        w = self.layer
        if self.inner:
            attended = layer_norm(w.inner_norm, x + attended)
        if self.norm == "around":
            attended = layer_norm(w.attention_norm, attended)
        y = self._join("2" if self.crossed else "1", "1", w.attention_gate, x, attended)
        if self.norm == "after":
            y = layer_norm(w.attention_norm, y)
        normed = layer_norm(w.mlp_norm, y) if self.norm in ("before", "around") else y
        out = self._join("2", "2", w.mlp_gate, y, net(w.mlp, normed))
        return layer_norm(w.mlp_norm, out) if self.norm == "after" else out

    def _join(self, before: str, after: str, gate: Any, x: Vector, y: Vector) -> Vector:
        zeta = 1.0 if self.layer.weight is None else float(self.layer.weight)
        if self.gate == "residual":
            return x + zeta * y
        if self.gate == "gru":
            return gru_gate(gate, x, zeta * relu(y))
        h = self.h.get(before, np.zeros(len(x)))
        self.h[after] = cell(gate.cell, x + zeta * y, h)
        return self.h[after]


def equations(memory: Any, gate: str, norm: str, **switches: bool) -> list[LayerEquation]:
    """One for each layer."""
    return [LayerEquation(layer, gate, norm, **switches) for layer in memory.layers]


def run_layers(
    attentions: list[Attention],
    equations: list[LayerEquation],
    embed: Callable[[Vector, int], Vector],
    xs: np.ndarray,
    starts: np.ndarray,
) -> np.ndarray:
    """All layers over a sequence, one observation at a time; `embed` also gets the episode's t."""
    outputs, t = [], 0
    for x, start in zip(numbers(xs), starts, strict=True):
        if start:
            t = 0
            for part in [*attentions, *equations]:
                part.forget()
        y = embed(x, t)
        for equation, attention in zip(equations, attentions, strict=True):
            y = equation.read(y, attention.read(y))
        outputs.append(y)
        t += 1
    return np.array(outputs)


def embedder(
    memory: Any, then: Callable[[Vector], Vector] = lambda y: y, embeds: bool = True
) -> Callable[[Vector, int], Vector]:
    """x W + b and what follows it, or x itself where nothing is embedded."""
    return lambda x, t: then(affine(memory.embedding, x)) if embeds else x


class Mixer:
    """A recurrence of a paper, with the weights of the library's."""

    def __init__(self, weights: Any):
        self.weights = weights
        self.forget()

    def forget(self) -> None:
        """h_0 = 0."""
        self.h: Any = 0.0


def run_mixers(
    mixer: Callable[[Any], Attention],
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    gate: str = "residual",
) -> np.ndarray:
    """The usual backbone around a mixer: x W + b, then pre-norm layers."""
    mixers = [mixer(layer.attention) for layer in memory.layers]
    return run_layers(mixers, equations(memory, gate, "before"), embedder(memory), xs, starts)
