"""The LSTM: Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000)."""

from functools import partial
from typing import Any

import numpy as np

from oracles.parts import numbers, run_cells, sigmoid


def cell(weights: Any, x: np.ndarray, state: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Any]:
    """h and c: i, f, o gates and the candidate g, unit by unit."""
    h, c = state
    size = len(h)
    w, b = numbers(weights.inputs.weight), numbers(weights.inputs.bias)
    u = numbers(weights.recurrent.weight)
    if weights.recurrent_bias is not None:
        b = b + numbers(weights.recurrent_bias)
    new_h, new_c = np.zeros(size), np.zeros(size)
    for unit in range(size):
        i, f, g, o = (
            w[:, k * size + unit] @ x + u[:, k * size + unit] @ h + b[k * size + unit]
            for k in range(4)
        )
        new_c[unit] = sigmoid(f) * c[unit] + sigmoid(i) * np.tanh(g)
        new_h[unit] = sigmoid(o) * np.tanh(new_c[unit])
    return new_h, new_c


run = partial(run_cells, cell, sizes=lambda memory: (memory.output_size,) * 2)
