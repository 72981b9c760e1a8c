"""Exact returns without any memory in the memory chain and the distributed memory."""

import math

import numpy as np
from jaxtyping import Bool

from clew.envs.distributed_memory import check_distributed, fixed_schedule
from clew.envs.memory_chain import check_chain
from clew.envs.recall import RIGHT_REWARD, WRONG_REWARD, bsuite_stream, check_stream


def one_bit_return(num_bits: int) -> float:
    """What one of k fair bits reveals about their majority, as a return of +1 or -1.

        G = C(k-1, floor((k-1)/2)) / 2^(k-1)

    that is E|S| / k for the sum S of k fair signs. Two policies that remember less than required
    earn this return: answering a question about the majority with a single bit, and a question
    about a single bit with the majority (in a tie, with anything).

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
        "constant": always answers 1 (always 0 earns the opposite). "majority": always answers with
        the majority of the bits, 1 in a tie. "memoryless": the best expected return without a
        memory, which is 1 if N = 1, since bits and question are seen together, and otherwise that
        of guessing, like "constant".

    Args:
        memory_length: N.
        num_bits: k.
        stream_seed: None for the expectation over new episodes, a number for the mean over the
            first `episodes` of that fixed stream.
        episodes: 100 in every published evaluation.

    Raises:
        UserError: for impossible sizes or an invalid seed.
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
        last bit if that is seen while answering, which a fixed schedule decides once and for all
        and a fresh one with probability k/N; otherwise like "constant".

    Args:
        memory_length: N.
        num_bits: k.
        schedule: "fixed" or "fresh".
        stream_seed: None for the expectation over new bits, a number for the mean over the first
            `episodes` of that fixed stream; over fresh times in either case.
        episodes: 100 in every published evaluation.

    Raises:
        UserError: for impossible sizes, an unknown schedule or an invalid seed.

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


def _mean_return(right: Bool[np.ndarray, " episodes"]) -> float:
    return float(np.where(right, RIGHT_REWARD, WRONG_REWARD).mean())
