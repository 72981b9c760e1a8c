"""Computes the values of tasks that the documentation states."""

from collections.abc import Sequence

import numpy as np

from clew.envs.tmaze import (
    DOWN,
    LEFT,
    RIGHT,
    RIGHT_TURN_REWARD,
    STEP_REWARD,
    UP,
    WRONG_TURN_REWARD,
)


def reach_probability(
    corridor_length: int,
    time_limit: int = 1000,
    action_probabilities: Sequence[float] = (0.25, 0.25, 0.25, 0.25),
) -> float:
    """Probability that a policy which ignores its observations reaches the T-Maze's junction.

        p_0 = e_0,   p_t[x] = sum_y p_{t-1}[y] P(x | y),   reached = p_limit[junction]

    by dynamic programming over positions, the junction absorbing.

    Args:
        corridor_length: number of positions, at least 2.
        time_limit: number of steps.
        action_probabilities: of up, down, left and right, the same at every step.
    """
    left, right = action_probabilities[LEFT], action_probabilities[RIGHT]
    idle = action_probabilities[UP] + action_probabilities[DOWN]
    position = np.zeros(corridor_length)
    position[0] = 1.0
    for _ in range(time_limit):
        corridor = position[:-1]
        moved = idle * corridor
        moved[0] += left * corridor[0]
        moved[:-1] += left * corridor[1:]
        moved[1:] += right * corridor[:-1]
        reached = position[-1] + right * corridor[-1]
        position = np.append(moved, reached)
    return float(position[-1])


def optimal_return(
    corridor_length: int, discount: float = 1.0, success_probability: float = 1.0
) -> float:
    """Expected return of walking straight to the T-Maze's junction and turning there.

        G = -0.1 (1 + d + ... + d^(L-2)) + d^(L-1) (4 s - (1 - s))

    for corridor length L, discount d and probability s of the right turn: 1 for an agent that
    remembers, 1/2 for the best one that does not.
    """
    turn = RIGHT_TURN_REWARD * success_probability + WRONG_TURN_REWARD * (1 - success_probability)
    weights = float(discount) ** np.arange(corridor_length)
    return float(STEP_REWARD * weights[:-1].sum() + weights[-1] * turn)


def dark_room_return(size: int, time_limit: int) -> float:
    """Mean return of the dark room's episodes if the goal is known and the start is the centre.

    The d-th step ends on a goal at distance d, and every later one stays there:

        G = mean over goals of max(0, time_limit - d + 1)
    """
    middle = (size - 1) // 2
    rows, columns = np.divmod(np.arange(size**2), size)
    away = np.abs(rows - middle) + np.abs(columns - middle)
    return float(np.maximum(0, time_limit + 1 - away[away > 0]).mean())
