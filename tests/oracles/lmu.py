"""The Legendre memory unit: Voelker et al. (2019), Eq. 4, 6 and 7.

The delay line is integrated by the series of the matrix exponential, in many small parts of a step.
"""

from typing import Any

import numpy as np

from oracles.parts import affine, run_cells

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
    """h and m of every cell."""
    order = memory.cells[0].w_m.weight.shape[0]
    a, b = delay_line(order, memory.cells[0].theta)

    def cell(w: Any, x: np.ndarray, state: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Any]:
        h, m = state
        u = affine(w.e_x, x) + affine(w.e_h, h) + affine(w.e_m, m)
        m = a @ m + b * u
        return np.tanh(affine(w.w_x, x) + affine(w.w_h, h) + affine(w.w_m, m)), m

    return run_cells(cell, memory, xs, starts, sizes=lambda memory: (memory.output_size, order))
