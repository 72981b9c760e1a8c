"""Transformer-XL: Dai et al. (2019), section 3; Pramanik (2023), Algorithm 3."""

from typing import Any

import numpy as np

from oracles.parts import affine, layer_kind, run_layers
from oracles.window import WindowedAttention


def run(memory: Any, xs: np.ndarray, starts: np.ndarray, norm: str = "after") -> np.ndarray:
    """Relative positions, residual connections."""
    owner = memory.layers[0].attention
    attentions = [WindowedAttention(layer.attention, owner) for layer in memory.layers]

    def embed(x: np.ndarray, t: int) -> np.ndarray:
        return affine(memory.embedding, x)

    return run_layers(memory, attentions, layer_kind("residual", norm), embed, xs, starts)
