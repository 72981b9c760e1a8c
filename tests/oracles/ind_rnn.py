"""The independently recurrent network: Li et al. (2018), unit by unit."""

from functools import partial
from typing import Any

import numpy as np

from oracles.parts import affine, numbers, relu, run_cells


def cell(weights: Any, x: np.ndarray, state: tuple[np.ndarray]) -> tuple[np.ndarray]:
    """h, of recurrent weights within their bound."""
    total = affine(weights.inputs, x)
    bound = 2.0 ** (1.0 / weights.longest)
    for unit, u in enumerate(numbers(weights.recurrent)):
        total[unit] += max(-bound, min(bound, u)) * state[0][unit]
    return (relu(total) if weights.activation == "relu" else np.tanh(total),)


run = partial(run_cells, cell)
