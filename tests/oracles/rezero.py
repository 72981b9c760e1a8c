"""ReZero: Bachlechner et al. (2020), Eq. 6; Makkink (2021), Eq. 2.36."""

from typing import Any

import numpy as np

from oracles.layers import embedder, equations, run_layers
from oracles.window import windows


def run(
    memory: Any,
    xs: np.ndarray,
    starts: np.ndarray,
    gate: str = "residual",
    embedding: bool = True,
    inner_residual: bool = False,
) -> np.ndarray:
    """Relative positions, a weight before what is added."""
    layers = equations(memory, gate, "none", inner=inner_residual)
    return run_layers(windows(memory), layers, embedder(memory, embeds=embedding), xs, starts)
