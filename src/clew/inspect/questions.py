"""Settings of an inspection: decisions, references, labels to probe."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int

from clew.errors import (
    Settings,
    UserError,
    require_at_least,
    require_choice,
    require_rate,
    unknown_name,
)
from clew.interact.episodes import Episodes
from clew.run.config import require_types

MOST_LABELS = 4
"""Most labels to probe unless some are chosen."""
MOST_NUMBERS = 256
"""Largest observation whose single numbers are taken as labels."""


@dataclass(frozen=True)
class Questions(Settings):
    """Settings of an inspection."""

    influence_episodes: int = 16
    """Number of episodes whose last (or chosen) decision is explained."""
    map_episodes: int = 4
    """Number of episodes for the map of decisions x past steps, at most `influence_episodes`."""
    every: int = 0
    """Steps between two decisions of the map; 0 chooses about 24 of them."""
    at: int = -1
    """Step of the decision, from 0; -1 is the last one of each episode."""
    reference: Literal["zeros", "mean"] = "zeros"
    """Replacement of an occluded observation: zeros, or the episode's mean."""
    share: float = 0.9
    """Fraction of the influence that the effective memory length covers."""
    probe: tuple[str, ...] = ()
    """What to probe: labels of the task, or "observation[i]", whether number i of the first
    observation is above its median (for a dict "NAME" or "NAME[i]"); by default the task's labels.
    """
    probe_points: int = 60
    """Most steps to probe."""
    seed: int = 0
    """Seed of the probe's folds."""

    def validate(self) -> None:
        require_types(self)
        for name in ("influence_episodes", "map_episodes"):
            require_at_least(name, getattr(self, name), 1)
        require_at_least("every", self.every, 0)
        require_at_least("at", self.at, -1)
        require_at_least("probe_points", self.probe_points, 2)
        require_choice("reference", self.reference, ("zeros", "mean"))
        require_rate("share", self.share)
        if not 0 < self.share <= 1:
            raise UserError(f"share must be above 0 and at most 1, got {self.share!r}")


def choose_labels(
    episodes: Episodes, wanted: Sequence[str] = ()
) -> dict[str, Int[np.ndarray, " episodes"]]:
    """The labels to probe, by name.

    By default they are the first few labels of the task. If it has none, they are the numbers of
    the first observation that differ between episodes, unless there are more than `MOST_NUMBERS`,
    as in a picture.

    Raises:
        UserError: for a label that neither the task nor the first observation has.
    """
    first = episodes.observations[:, 0]
    names = episodes.entries or [f"observation[{i}]" for i in range(first.shape[1])]
    numbers = {
        name: (first[:, i] > np.median(first[:, i])).astype(int)
        if len(np.unique(first[:, i])) > 2
        else (first[:, i] == first[:, i].max()).astype(int)
        for i, name in enumerate(names)
    }
    known = episodes.labels | numbers
    for name in wanted:
        if name not in known:
            raise unknown_name("label to probe", name, known)
    if wanted:
        return {name: known[name] for name in wanted}
    differing = {n: c for n, c in numbers.items() if len(np.unique(c)) > 1}
    if len(numbers) > MOST_NUMBERS:
        differing = {}
    return dict(list((episodes.labels or differing).items())[:MOST_LABELS])
