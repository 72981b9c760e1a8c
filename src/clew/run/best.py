"""The best agents of a run so far, one for each seed, in a file beside the checkpoints.

Training can lose what was learned, so the best agents are kept. An agent's score is the mean return
of its evaluation, if the run has evaluations (see `clew.run.evaluation`). Otherwise it is the mean
return in training over the newest rows of metrics that together have at least `EPISODES` episodes;
it then includes agents shortly before this one. The highest of many such means is biased upwards by
selection: evaluate the kept agents on fresh episodes.
"""

import math
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from clew.run import checkpoint, machine
from clew.run.checkpoint import Checkpoint, CheckpointError, Identity
from clew.run.json_lines import Row
from clew.run.names import EVALUATED

EPISODES = 100
"""Least number of episodes of a score."""
AGENT, STATISTICS = "/seed/agent", "/seed/actor/statistics"
"""Paths of the agents and of their wrappers' statistics in the state of a run."""
_SEEDS = "seeds"
"""Key in the meta values of the file: update and score of every seed."""


class Score(NamedTuple):
    """The update at which an agent was the best of its seed, and its score."""

    update: int
    mean: float


class Recent:
    """The mean return over a seed's newest rows of `EPISODES` episodes or more."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, float]] = deque()
        self._episodes = 0

    def add(self, episodes: int, mean: float | None) -> float | None:
        """Adds a row's number of episodes and their mean.

        Returns:
            The new mean; None if no episode ended, or there are too few of them yet.
        """
        if not episodes or mean is None:
            return None
        self._rows.append((episodes, mean))
        self._episodes += episodes
        while self._episodes - self._rows[0][0] >= EPISODES:
            self._episodes -= self._rows.popleft()[0]
        if self._episodes < EPISODES:
            return None
        return sum(number * mean for number, mean in self._rows) / self._episodes


class Best:
    """Keeps the agent of every seed while its score is the highest so far.

    Among equal scores the newest agent is kept. A resumed run keeps the same agents as one that
    never stopped, if its rows are given to `follow` first. (Except for an agent of a row that a run
    of fewer steps wrote early, at its end.) With `evaluated`, evaluations give the scores.

    Attributes:
        scores: of the kept agents, for each seed.
    """

    def __init__(self, seeds: int, *, evaluated: bool = False):
        self._evaluated = evaluated
        self.scores = [Score(0, -math.inf)] * seeds
        self._recent = [Recent() for _ in range(seeds)]
        self._leaves: dict[str, np.ndarray] = {}
        self._places: dict[str, int] = {}  # their places among the leaves of a run's state
        self._changed = False

    @property
    def complete(self) -> bool:
        """Whether every seed has a score."""
        return all(math.isfinite(score.mean) for score in self.scores)

    def load(self, folder: Path, identity: Identity) -> None:
        """Loads the file from the folder of a run's checkpoints, if there is one.

        Raises:
            CheckpointError: if the file is damaged or belongs to another run.
        """
        path = folder / checkpoint.BEST
        if path.exists():
            read = identity.check(checkpoint.read(path))
            self.scores = scores_of(read, len(self.scores))
            self._leaves = {name: np.array(leaf) for name, leaf in read.leaves.items()}

    def follow(self, row: Row) -> list[float | None]:
        """Adds a row of metrics and returns the scores of its agents, None for those without."""
        if self._evaluated:
            return row.get(f"{EVALUATED}return", [])
        # A row that was written by hand may lack some.
        returns = zip(self._recent, row["episodes"], row.get("return", ()), strict=False)
        return [recent.add(episodes, mean) for recent, episodes, mean in returns]

    def see(self, row: Row, state: PyTree) -> None:
        """Adds a row of metrics, and keeps the agents of the `RunState` at its update that have the
        highest score so far."""
        better = []
        for seed, mean in enumerate(self.follow(row)):
            if mean is not None and mean >= self.scores[seed].mean:
                self.scores[seed] = Score(row["update"], mean)
                better.append(seed)
        if not better:
            return
        self._changed = True
        if not self._places:  # once, since naming all leaves takes longer than copying the agents
            places = {name: n for n, name in enumerate(checkpoint.named_leaves(state))}
            kept = (AGENT, STATISTICS)
            self._places = {name: n for name, n in places.items() if name.startswith(kept)}
        leaves = jax.tree.leaves(state)
        for name, place in self._places.items():
            leaf = leaves[place]
            if len(self._recent) == 1 or name not in self._leaves:
                self._leaves[name] = np.array(leaf)  # a copy, since the program reuses its state
            else:
                self._leaves[name][better] = np.asarray(leaf)[better]

    def save(self, folder: Path, identity: Identity) -> None:
        """Writes the file, if anything has changed and every seed has an agent.

        Raises:
            CheckpointError: if the disk is full or cannot be written to.
        """
        if self._changed and self.complete:
            newest = max(score.update for score in self.scores)
            meta: dict[str, Any] = {"update": newest, _SEEDS: self.scores} | identity.meta()
            path = folder / checkpoint.BEST
            checkpoint.save_agents(path, self._leaves, meta, machine.versions())
            self._changed = False


def scores_of(read: Checkpoint, seeds: int) -> list[Score]:
    """The scores in a file of best agents.

    Raises:
        CheckpointError: if there is not exactly one for each seed.
    """
    try:
        scores = [Score(*score) for score in read.meta[_SEEDS]]
    except (KeyError, TypeError):
        scores = []
    whole = all(type(s.update) is int and type(s.mean) in (int, float) for s in scores)
    if len(scores) != seeds or not whole:
        raise CheckpointError(f"{read.path}: lacks a score for each of the run's {seeds} seeds")
    return scores
