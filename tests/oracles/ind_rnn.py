"""The independently recurrent network: Li et al. (2018), unit by unit."""

from typing import Any

import numpy as np

from oracles.parts import affine, numbers, relu


def run(memory: Any, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Cells on top of each other, their recurrent weights within their bound."""
    outputs = []
    size = memory.output_size
    state = [np.zeros(size) for _ in memory.cells]
    for x, start in zip(numbers(xs), starts, strict=True):
        for layer, weights in enumerate(memory.cells):
            h, total = np.zeros(size) if start else state[layer], affine(weights.inputs, x)
            bound = 2.0 ** (1.0 / weights.longest)
            for unit, u in enumerate(numbers(weights.recurrent)):
                total[unit] += max(-bound, min(bound, u)) * h[unit]
            x = state[layer] = relu(total) if weights.activation == "relu" else np.tanh(total)
        outputs.append(x)
    return np.array(outputs)
