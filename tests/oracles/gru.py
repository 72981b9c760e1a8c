"""The GRU: Cho et al. (2014), Eq. 5-8, with the reset gate after the recurrent product."""

from typing import Any

import numpy as np

from oracles.parts import numbers, sigmoid


def run(memory: Any, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Reset gate r, update gate z, candidate n, unit by unit of every layer."""
    outputs = []
    size = memory.output_size
    state = [np.zeros(size) for _ in memory.cells]
    for x, start in zip(numbers(xs), starts, strict=True):
        for layer, weights in enumerate(memory.cells):
            h = np.zeros(size) if start else state[layer]
            w, b = numbers(weights.inputs.weight), numbers(weights.inputs.bias)
            u, c = numbers(weights.recurrent.weight), numbers(weights.candidate_bias)
            new = np.zeros(size)
            for unit in range(size):
                of_r, of_z, of_n = unit, size + unit, 2 * size + unit
                r = sigmoid(w[:, of_r] @ x + u[:, of_r] @ h + b[of_r])
                z = sigmoid(w[:, of_z] @ x + u[:, of_z] @ h + b[of_z])
                n = np.tanh(w[:, of_n] @ x + b[of_n] + r * (u[:, of_n] @ h + c[unit]))
                new[unit] = (1.0 - z) * n + z * h[unit]
            state[layer] = new
            x = new
        outputs.append(x)
    return np.array(outputs)
