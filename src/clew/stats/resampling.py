"""Scores drawn again with replacement, task by task, in blocks of bounded memory."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

BLOCK = 2**22  # numbers of one block, 32 MB


def blocks(resamples: int, numbers: int) -> Iterator[int]:
    """Splits a number of resamples, each of so many numbers, into blocks that fit in memory."""
    most = max(1, BLOCK // numbers)
    for first in range(0, resamples, most):
        yield min(most, resamples - first)


def resampled_scores(
    scores: Float[np.ndarray, "seeds tasks"], count: int, rng: np.random.Generator
) -> Float[np.ndarray, "count seeds tasks"]:
    """Draws the seeds of every task with replacement, each task by itself."""
    picks = rng.integers(0, scores.shape[0], (count, *scores.shape))
    return np.take_along_axis(scores[None], picks, axis=1)


def resampled_counts(
    seeds: int, tasks: int, count: int, rng: np.random.Generator
) -> Int[np.ndarray, "count tasks seeds"]:
    """How often each seed of each task is drawn, where means over pairs are all that counts."""
    picks = rng.integers(0, seeds, (count, tasks, seeds))
    cells = np.arange(count * tasks).reshape(count, tasks, 1) * seeds + picks
    counted = np.bincount(cells.ravel(), minlength=count * tasks * seeds)
    return counted.reshape(count, tasks, seeds)
