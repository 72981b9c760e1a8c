"""GTrXL: Parisotto et al. (2020), section 3; Pramanik (2023), Algorithm 3 and section 2.5.2."""

from typing import Any

import numpy as np

from oracles.layers import equations, run_layers
from oracles.parts import affine, relu
from oracles.window import WindowedAttention


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    gate: str = "gru",
    norm: str = "before",
    query_norm: bool = True,
    banded: bool = True,
    embedding: bool = True,
    inner_residual: bool = False,
) -> np.ndarray:
    """Relative positions, gates; without the band one chunk that sees all of itself."""
    owner = memory.layers[0].attention
    attentions = [WindowedAttention(layer.attention, owner, query_norm) for layer in memory.layers]
    if not banded:
        for attention in attentions:
            attention.reach = len(xs)

    def embed(x: np.ndarray, t: int) -> np.ndarray:
        return relu(affine(memory.embedding, x)) if embedding else x

    return run_layers(
        attentions, equations(memory, gate, norm, inner=inner_residual), embed, xs, starts
    )
