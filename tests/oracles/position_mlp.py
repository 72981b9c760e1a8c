"""A net that reads an observation and the sinusoids of its position in the episode."""

from typing import Any

import numpy as np

from oracles.parts import affine, numbers, relu, sinusoid


def run(memory: Any, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """t counts from 0 in every episode."""
    outputs, t = [], 0
    for x, start in zip(numbers(xs), starts, strict=True):
        t = 0 if start else t
        y = np.concatenate([x, sinusoid(t, memory.encoding_size)])
        for layer in memory.layers:
            y = relu(affine(layer, y))
        outputs.append(y)
        t += 1
    return np.array(outputs)
