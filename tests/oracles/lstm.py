"""The LSTM: Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000)."""

from typing import Any

import numpy as np

from oracles.parts import numbers, sigmoid


def run(memory: Any, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """i, f, o gates and the candidate g, unit by unit of every layer."""
    outputs = []
    size = memory.output_size
    state = [(np.zeros(size), np.zeros(size)) for _ in memory.cells]
    for x, start in zip(numbers(xs), starts, strict=True):
        for layer, weights in enumerate(memory.cells):
            c, h = (np.zeros(size), np.zeros(size)) if start else state[layer]
            w, b = numbers(weights.inputs.weight), numbers(weights.inputs.bias)
            u = numbers(weights.recurrent.weight)
            if weights.recurrent_bias is not None:
                b = b + numbers(weights.recurrent_bias)
            new_c, new_h = np.zeros(size), np.zeros(size)
            for unit in range(size):
                i, f, g, o = (
                    w[:, k * size + unit] @ x + u[:, k * size + unit] @ h + b[k * size + unit]
                    for k in range(4)
                )
                new_c[unit] = sigmoid(f) * c[unit] + sigmoid(i) * np.tanh(g)
                new_h[unit] = sigmoid(o) * np.tanh(new_c[unit])
            state[layer] = (new_c, new_h)
            x = new_h
        outputs.append(x)
    return np.array(outputs)
