"""ReZero: Bachlechner et al. (2020), Eq. 6; Makkink (2021), Eq. 2.36."""

from typing import Any

import numpy as np

from oracles.layers import equations, run_layers
from oracles.parts import affine
from oracles.window import WindowedAttention


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    gate: str = "residual",
    embedding: bool = True,
    inner_residual: bool = False,
) -> np.ndarray:
    """Relative positions, a weight before what is added."""
    owner = memory.layers[0].attention
    attentions = [WindowedAttention(layer.attention, owner) for layer in memory.layers]

    def embed(x: np.ndarray, t: int) -> np.ndarray:
        return affine(memory.embedding, x) if embedding else x

    layers = equations(memory, gate, "none", inner=inner_residual)
    return run_layers(attentions, layers, embed, xs, starts)
