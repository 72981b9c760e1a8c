"""The Integrated Transformer: Makkink (2021), Algorithm 3."""

from typing import Any

import numpy as np

from oracles import universal


def run(memory: Any, xs: np.ndarray, starts: np.ndarray, **options: Any) -> np.ndarray:
    """The block of GTrXL's gates and ReZero's weight, halted as in the Universal Transformer."""
    return universal.run(memory, xs, starts, **{"gate": "gru", "norm": "none", **options})
