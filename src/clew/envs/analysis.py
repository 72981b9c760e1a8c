"""What the T-Maze asks of an agent, computed exactly: how hard its junction is to find by chance,
and what the best policies earn."""

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
from clew.errors import UserError, require_at_least, require_fraction


def reach_probability(
    corridor_length: int,
    time_limit: int = 1000,
    action_probabilities: Sequence[float] = (0.25, 0.25, 0.25, 0.25),
) -> float:
    """Probability that a policy which ignores its observations reaches the junction in time.

    A warning in numbers: the uniform policy of an untrained agent reaches it with probability
    1.8e-7 at corridor length 120 and 7e-19 at 200, so nearly every first episode is a time-out.
    What leads an agent there is its own optimism: its value estimates start near 0 and every
    step costs 0.1, so positions not yet seen look better. Normalising rewards, returns or
    advantages takes that away.

        p_0 = e_0,   p_t[x] = sum_y p_{t-1}[y] P(x | y),   reached = p_limit[junction]

    by dynamic programming over positions, the junction absorbing.

    Args:
        corridor_length: number of positions, at least 2.
        time_limit: number of steps.
        action_probabilities: of up, down, left and right, the same at every step.

    Raises:
        UserError: impossible sizes, or four numbers that are no distribution.
    """
    require_at_least("corridor_length", corridor_length, 2)
    require_at_least("time_limit", time_limit, 1)
    probabilities = np.asarray(action_probabilities, np.float64)
    valid = probabilities.shape == (4,) and bool(np.all(probabilities >= 0))
    if not valid or abs(probabilities.sum() - 1.0) > 1e-6:
        raise UserError(
            "action_probabilities must be four numbers of at least 0 that sum to 1 (up, down, "
            f"left, right), got {action_probabilities!r}"
        )
    left, right = probabilities[LEFT], probabilities[RIGHT]
    idle = probabilities[UP] + probabilities[DOWN]
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
    """Expected return of walking straight to the junction and turning there.

        G = -0.1 (1 + d + ... + d^(L-2)) + d^(L-1) (4 s - (1 - s))

    for corridor length L, discount d and probability s of the right turn: 1 for an agent that
    remembers, 1/2 for the best one that does not.

    Raises:
        UserError: a corridor shorter than 2, or a discount or probability outside [0, 1].
    """
    require_at_least("corridor_length", corridor_length, 2)
    require_fraction("discount", discount)
    require_fraction("success_probability", success_probability)
    turn = RIGHT_TURN_REWARD * success_probability + WRONG_TURN_REWARD * (1 - success_probability)
    weights = float(discount) ** np.arange(corridor_length)
    return float(STEP_REWARD * weights[:-1].sum() + weights[-1] * turn)
