"""What a finished run's own numbers say about its settings."""

import statistics
from collections.abc import Sequence
from typing import Any

from clew.interact.tasks import of_others
from clew.run.config import TrainConfig

MUCH = 10.0
"""Clipping by more than this is worth a word."""


def advice(rows: Sequence[dict[str, Any]], config: TrainConfig) -> str | None:
    """One line of advice, or None.

    Where returns are large, so is the error of the value, whose gradient goes through the memory
    as the policy's does: clipped to max_grad_norm, what is left of the policy's is little (see
    docs/training.md, with an example). Only environments of others take
    that wrapper.

    Args:
        rows: of metrics, in order.
        config: of the run.
    """
    limit = config.learning.max_grad_norm
    scaled = config.wrappers.normalise_rewards or config.wrappers.reward_scale != 1.0
    if limit is None or scaled or not of_others(config.env):
        return None
    norms = [norm for row in rows for norm in row["grad_norm"] if norm is not None]
    length = statistics.median(norms) if norms else 0.0
    if length <= MUCH * limit:
        return None
    return (
        f"gradients were {length:.3g} long (median) and clipped to {limit:g}: "
        "rewards are large for these settings, --wrappers.normalise-rewards may teach faster"
    )
