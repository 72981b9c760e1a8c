"""The simple recurrent network: Elman (1990), with tanh."""

from functools import partial
from typing import Any

import numpy as np

from oracles.parts import affine, numbers, relu, run_cells


def cell(weights: Any, x: np.ndarray, state: tuple[np.ndarray]) -> tuple[np.ndarray]:
    """h."""
    total = affine(weights.inputs, x) + numbers(weights.recurrent.weight).T @ state[0]
    return (relu(total) if weights.activation == "relu" else np.tanh(total),)


run = partial(run_cells, cell)
