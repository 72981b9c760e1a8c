"""Transformer-XL: Dai et al. (2019), section 3; Pramanik (2023), Algorithm 3."""

from typing import Any

import numpy as np

from oracles.layers import embedder, equations, run_layers
from oracles.window import windows


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    norm: str = "after",
    embedding: bool = True,
    inner_residual: bool = False,
) -> np.ndarray:
    """Relative positions, residual connections."""
    layers = equations(memory, "residual", norm, inner=inner_residual)
    return run_layers(windows(memory), layers, embedder(memory, embeds=embedding), xs, starts)
