"""GTrXL: Parisotto et al. (2020), section 3; Pramanik (2023), Algorithm 3 and section 2.5.2."""

from typing import Any

import numpy as np

from oracles.layers import embedder, equations, run_layers
from oracles.parts import relu
from oracles.window import windows


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
    attentions = windows(memory, query_norm)
    if not banded:
        for attention in attentions:
            attention.reach = len(xs)
    layers = equations(memory, gate, norm, inner=inner_residual)
    return run_layers(attentions, layers, embedder(memory, relu, embedding), xs, starts)
