"""The canonical transformer: Vaswani et al. (2017), section 3; Pramanik (2023), Algorithm 1."""

from typing import Any

import numpy as np

from oracles.layers import equations, run_layers
from oracles.parts import affine, sinusoid
from oracles.window import WindowedAttention


def run(memory: Any, xs: np.ndarray, starts: np.ndarray, norm: str = "after") -> np.ndarray:
    """Absolute positions are counted from each episode's start."""
    attentions = [WindowedAttention(layer.attention, None) for layer in memory.layers]

    def embed(x: np.ndarray, t: int) -> np.ndarray:
        return affine(memory.embedding, x) + sinusoid(t, memory.output_size)

    return run_layers(attentions, equations(memory, "residual", norm), embed, xs, starts)
