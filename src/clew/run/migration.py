"""Saved runs of earlier versions under today's names."""

import re

import numpy as np

_LEAVES = (
    # Learners had nothing but an optimiser's state.
    (re.compile("^/seed/optimiser/"), "/seed/learner/optimiser/"),
    # All agents were actor-critics, and optimisers keep what they know by the agents' paths.
    (
        re.compile(
            r"^(/seed/agent|/seed/learner/optimiser/.*?/(?:mu|nu|trace))/(actor|critic|free)\b"
        ),
        r"\1/heads/\2",
    ),
)


def migrate_leaves(leaves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint by today's paths."""
    return {_today(path): leaf for path, leaf in leaves.items()}


def _today(path: str) -> str:
    for before, now in _LEAVES:
        path = before.sub(now, path)
    return path
