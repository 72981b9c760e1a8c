"""The fixed streams of episodes on which the published study ran its tasks, draw by draw."""

import random
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

STREAM_LENGTH = 10_000
"""Episodes of a published run."""


class Stream(NamedTuple):
    """What a published random stream makes of each episode, in order."""

    contexts: Int[np.ndarray, "episodes bits"]
    """The bits, 0 or 1."""
    queries: Int[np.ndarray, " episodes"]
    """Which bit is asked for; 0 where the task asks for none."""


@lru_cache(maxsize=64)
def published_stream(num_bits: int, seed: int, length: int, with_query: bool) -> Stream:
    """The episodes that the published tasks draw from NumPy's `RandomState(seed)`.

    Both tasks draw bits, then a query, in their constructor and throw them away. Then every reset
    draws its bits, and that of bsuite's task also a query, even where there is one bit only.

    Args:
        num_bits: bits of an episode.
        seed: 0 in every published run, whatever the run's own seed: training and evaluation see
            the same episodes, and the 100 episodes of an evaluation are the training's first 100.
        length: number of episodes.
        with_query: True as bsuite's memory chain, False as Makkink's distributed memory.

    Source: the code of bsuite, and that published with Makkink (2021).
    """
    rng = np.random.RandomState(seed)
    rng.binomial(1, 0.5, num_bits)
    rng.randint(num_bits)
    contexts = np.empty((length, num_bits), np.int32)
    queries = np.zeros(length, np.int32)
    for episode in range(length):
        contexts[episode] = rng.binomial(1, 0.5, num_bits)
        if with_query:
            queries[episode] = rng.randint(num_bits)
    contexts.flags.writeable = queries.flags.writeable = False  # the cache hands them out again
    return Stream(contexts, queries)


def published_schedule(memory_length: int, num_bits: int) -> tuple[int, ...]:
    """When Makkink's task shows each bit, in every episode of every run.

        times = sorted(random.Random(0).sample(range(memory_length), num_bits))

    The published code seeds Python's global generator for it; this leaves that one alone.

    Source: the code published with Makkink (2021).
    """
    return tuple(sorted(random.Random(0).sample(range(memory_length), num_bits)))
