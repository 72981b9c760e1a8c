"""The GRU: Cho et al. (2014), Eq. 5-8, with the reset gate after the recurrent product."""

from functools import partial
from typing import Any

import numpy as np

from oracles.parts import numbers, run_cells, sigmoid


def cell(weights: Any, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Reset gate r, update gate z, candidate n, unit by unit."""
    size = len(h)
    w, b = numbers(weights.inputs.weight), numbers(weights.inputs.bias)
    u, c = numbers(weights.recurrent.weight), numbers(weights.recurrent_bias)
    if len(c) == size:
        c = np.concatenate([np.zeros(2 * size), c])  # only the candidate's product has one
    new = np.zeros(size)
    for unit in range(size):
        of_r, of_z, of_n = unit, size + unit, 2 * size + unit
        r = sigmoid(w[:, of_r] @ x + b[of_r] + u[:, of_r] @ h + c[of_r])
        z = sigmoid(w[:, of_z] @ x + b[of_z] + u[:, of_z] @ h + c[of_z])
        n = np.tanh(w[:, of_n] @ x + b[of_n] + r * (u[:, of_n] @ h + c[of_n]))
        new[unit] = (1.0 - z) * n + z * h[unit]
    return new


run = partial(run_cells, lambda weights, x, state: (cell(weights, x, state[0]),))
