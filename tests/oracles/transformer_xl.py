"""Transformer-XL: Dai et al. (2019), section 3; Pramanik (2023), Algorithm 3."""

from typing import Any

import numpy as np

from oracles.layers import equations, run_layers
from oracles.parts import affine
from oracles.window import WindowedAttention


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    norm: str = "after",
    embedding: bool = True,
    inner_residual: bool = False,
) -> np.ndarray:
    """Relative positions, residual connections."""
    owner = memory.layers[0].attention
    attentions = [WindowedAttention(layer.attention, owner) for layer in memory.layers]

    def embed(x: np.ndarray, t: int) -> np.ndarray:
        return affine(memory.embedding, x) if embedding else x

    return run_layers(
        attentions, equations(memory, "residual", norm, inner=inner_residual), embed, xs, starts
    )
