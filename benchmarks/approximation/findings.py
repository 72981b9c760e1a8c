"""The findings from the tables of Figure 4.1."""

from collections.abc import Sequence

import numpy as np
from benchmarks.approximation import errors
from benchmarks.approximation.tables import Row

ROUNDING = 1e-5
"""Errors below this come from rounding, and from the steps that `draws` leaves out."""


def findings(figure: Sequence[Row]) -> list[str]:
    """The findings of the tables, as lines."""
    settings = list(dict.fromkeys((row["r"], row["gate"]) for row in figure))
    error = {(row["set"], row["r"], row["gate"]): row["mean_error"] for row in figure}
    full = np.array([error["full_wave", *setting] for setting in settings])
    lines = [
        _compared(f"Figure 4.1: full wave against {name}", full,
                  np.array([error[name, *setting] for setting in settings]))
        for name in ("thesis", "code", "half_wave")
    ]  # fmt: skip
    own = np.sqrt([errors.full_wave_square(*setting) for setting in settings])
    for name, square in (("thesis", errors.thesis_square), ("half_wave", errors.half_wave_square)):
        other = np.sqrt([square(*setting) for setting in settings])
        lines.append(_compared(f"over time: full wave against {name}", own, other))
    seen = [row for row in figure if row["calculated_error"] > 100 * ROUNDING]
    gap = max(abs(row["mean_error"] / row["calculated_error"] - 1) for row in seen)
    return [*lines, f"draws: mean errors within {gap:.1%} of those calculated"]


def _compared(what: str, own: np.ndarray, other: np.ndarray) -> str:
    """In how many settings which one is nearer; where both are exact up to rounding, neither is."""
    apart = np.maximum(own, other) > ROUNDING
    ratio = other[apart] / np.maximum(own[apart], ROUNDING)
    better, worse = (f"{np.mean(ratio > 1):.1%}", f"{np.mean(ratio < 1):.1%}")
    return (
        f"{what}: nearer in {better} of {len(ratio):,} settings, farther in {worse}; "
        f"the other's error is at least {ratio.min():.3g} times its own"
    )
