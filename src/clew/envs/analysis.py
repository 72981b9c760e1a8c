"""What the tasks ask of an agent, computed exactly: how hard the T-Maze's junction is to find by
chance, what the best policies earn, and what is earned without any memory."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from clew.envs.distributed_memory import check_distributed, fixed_schedule
from clew.envs.memory_chain import check_chain
from clew.envs.recall import RIGHT_REWARD, WRONG_REWARD, bsuite_stream, check_stream
from clew.envs.tmaze import (
    DOWN,
    LEFT,
    RIGHT,
    RIGHT_TURN_REWARD,
    STEP_REWARD,
    UP,
    WRONG_TURN_REWARD,
)
from clew.errors import LONGEST_EPISODE, UserError, require_at_least, require_fraction


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
    require_at_least("corridor_length", corridor_length, 2, LONGEST_EPISODE)
    require_at_least("time_limit", time_limit, 1, LONGEST_EPISODE)
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
    require_at_least("corridor_length", corridor_length, 2, LONGEST_EPISODE)
    require_fraction("discount", discount)
    require_fraction("success_probability", success_probability)
    turn = RIGHT_TURN_REWARD * success_probability + WRONG_TURN_REWARD * (1 - success_probability)
    weights = float(discount) ** np.arange(corridor_length)
    return float(STEP_REWARD * weights[:-1].sum() + weights[-1] * turn)


def one_bit_return(num_bits: int) -> float:
    """What one of k fair bits reveals about their majority, as a return of +1 or -1.

        G = C(k-1, floor((k-1)/2)) / 2^(k-1)

    that is E|S| / k for the sum S of k fair signs. Two policies that remember less than asked
    earn as much: to answer a question about the majority with a single bit, and a question about
    a single bit with the majority (where there is none, with anything).

    Raises:
        UserError: fewer than 1 bit.
    """
    check_chain(1, num_bits)
    return math.comb(num_bits - 1, (num_bits - 1) // 2) / 2 ** (num_bits - 1)


def memory_chain_floors(
    memory_length: int, num_bits: int, stream_seed: int | None = None, episodes: int = 100
) -> dict[str, float]:
    """Mean returns in the memory chain of policies that do not do what it asks.

    Returns:
        "constant": always answers 1 (always 0 earns the opposite). "majority": answers what most
        bits were, 1 in a tie, whatever is asked. "memoryless": the best that one can expect
        without a memory, which is 1 where N = 1, since bits and question are seen together, and
        otherwise guessing, as "constant".

    Args:
        memory_length: N.
        num_bits: k.
        stream_seed: None for the expectation over fresh episodes, a number for the mean over the
            first `episodes` of that fixed stream.
        episodes: 100 in every published evaluation.

    Raises:
        UserError: impossible sizes, or what is no seed.
    """
    check_chain(memory_length, num_bits)
    check_stream(stream_seed, episodes)
    if stream_seed is None:
        constant, majority = 0.0, one_bit_return(num_bits)
    else:
        contexts, queries = bsuite_stream(num_bits, stream_seed, episodes, True)
        asked = contexts[np.arange(episodes), queries]
        constant = _mean_return(asked == 1)
        majority = _mean_return(asked == (2 * contexts.sum(1) >= num_bits))
    memoryless = 1.0 if memory_length == 1 else constant
    return {"constant": constant, "majority": majority, "memoryless": memoryless}


def distributed_memory_floors(
    memory_length: int,
    num_bits: int,
    schedule: str = "fixed",
    stream_seed: int | None = None,
    episodes: int = 100,
) -> dict[str, float]:
    """Mean returns in the distributed memory of policies that remember nothing.

    Returns:
        "constant": always answers 1 (always 0 earns the opposite). "memoryless": answers with the
        last bit if that is seen while answering, which a fixed schedule decides once for all and
        a fresh one with probability k/N; otherwise as "constant".

    Args:
        memory_length: N.
        num_bits: k.
        schedule: "fixed" or "fresh".
        stream_seed: None for the expectation over fresh bits, a number for the mean over the
            first `episodes` of that fixed stream; over fresh times in either case.
        episodes: 100 in every published evaluation.

    Raises:
        UserError: impossible sizes, an unknown schedule, or what is no seed.

    Source: the published column "No Memory" of Makkink (2021), table C.3, which the policy
    "memoryless" reproduces: 0.64, 0.34, 0.28, 0.08 and 0.24 on the stream of seed 0.
    """
    check_distributed(memory_length, num_bits, schedule)
    check_stream(stream_seed, episodes)
    if stream_seed is None:
        constant, last_bit = 0.0, one_bit_return(num_bits)
    else:
        contexts = bsuite_stream(num_bits, stream_seed, episodes, False).contexts
        majority = 2 * contexts.sum(1) > num_bits
        constant, last_bit = _mean_return(majority), _mean_return(majority == contexts[:, -1])
    seen = float(memory_length - 1 in fixed_schedule(memory_length, num_bits))
    if schedule == "fresh":
        seen = num_bits / memory_length
    return {"constant": constant, "memoryless": seen * last_bit + (1 - seen) * constant}


def dark_room_return(size: int, time_limit: int) -> float:
    """Mean return of an episode in which the goal is known and the start is the centre.

    The d-th step ends on a goal at distance d, and every later one stays there:

        G = mean over goals of max(0, time_limit - d + 1)

    Raises:
        UserError: an impossible size or limit.
    """
    require_at_least("size", size, 2)
    require_at_least("time_limit", time_limit, 1)
    middle = (size - 1) // 2
    rows, columns = np.divmod(np.arange(size**2), size)
    away = np.abs(rows - middle) + np.abs(columns - middle)
    return float(np.maximum(0, time_limit + 1 - away[away > 0]).mean())


def _mean_return(right: Bool[np.ndarray, " episodes"]) -> float:
    return float(np.where(right, RIGHT_REWARD, WRONG_REWARD).mean())
