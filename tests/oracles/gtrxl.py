"""GTrXL: Parisotto et al. (2020), section 3; Pramanik (2023), Algorithm 3 and section 2.5.2."""

from typing import Any

import numpy as np

from oracles.parts import affine, layer_kind, relu, run_layers
from oracles.window import WindowedAttention


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    gate: str = "gru",
    query_norm: bool = True,
    banded: bool = True,
) -> np.ndarray:
    """Relative positions, gates; without the band one chunk that sees all of itself."""
    owner = memory.layers[0].attention
    attentions = [WindowedAttention(layer.attention, owner, query_norm) for layer in memory.layers]
    if not banded:
        for attention in attentions:
            attention.reach = len(xs)

    def embed(x: np.ndarray, t: int) -> np.ndarray:
        return relu(affine(memory.embedding, x))

    return run_layers(memory, attentions, layer_kind(gate, "before"), embed, xs, starts)
