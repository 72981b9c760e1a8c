"""The Legendre memory unit: Voelker et al. (2019), Eq. 4, 6 and 7.

The delay line is integrated by the series of the matrix exponential, in many small parts of a step.
"""

from typing import Any

import numpy as np

from oracles.parts import affine, numbers

PARTS = 4096


def delay_line(order: int, theta: int) -> tuple[np.ndarray, np.ndarray]:
    """m after one step from each unit vector with u = 0, and from 0 with u = 1."""
    a, b = np.zeros((order, order)), np.zeros(order)
    for i in range(order):
        b[i] = (2 * i + 1) * (-1.0) ** i / theta
        for j in range(order):
            a[i, j] = (2 * i + 1) / theta * (-1.0 if i < j else (-1.0) ** (i - j + 1))

    def after(m: np.ndarray, u: float) -> np.ndarray:
        for _ in range(PARTS):
            slope = a @ m + b * u
            term, m = slope / PARTS, m + slope / PARTS
            for power in range(2, 6):
                term = a @ term / (PARTS * power)
                m = m + term
        return m

    columns = [after(unit, 0.0) for unit in np.eye(order)]
    return np.array(columns).T, after(np.zeros(order), 1.0)


def run(memory: Any, xs: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Cells on top of each other."""
    order = memory.cells[0].w_m.weight.shape[0]
    a, b = delay_line(order, memory.cells[0].theta)
    fresh = np.zeros(memory.output_size), np.zeros(order)
    outputs, state = [], [fresh for _ in memory.cells]
    for x, start in zip(numbers(xs), starts, strict=True):
        for layer, w in enumerate(memory.cells):
            h, m = fresh if start else state[layer]
            u = affine(w.e_x, x) + affine(w.e_h, h) + affine(w.e_m, m)
            m = a @ m + b * u
            x = np.tanh(affine(w.w_x, x) + affine(w.w_h, h) + affine(w.w_m, m))
            state[layer] = x, m
        outputs.append(x)
    return np.array(outputs)
