"""Evaluation while training: at intervals, each seed's agent plays fresh episodes."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.files import finite
from clew.interact.episodes import EpisodeTooLong, metrics_of_all
from clew.interact.host_rollout import unpacked
from clew.run.build import Parts
from clew.run.config import TrainConfig
from clew.run.names import EVALUATED
from clew.run.updates import SeedState

OWN_KEYS = 2**31 + 2
"""Separates the random keys of evaluations from all keys that are split from a seed's."""


class Evaluation:
    """Plays the evaluations of a run; it compiles once.

    Environments are opened for each evaluation. The random keys of its episodes and actions follow
    from the seed and the number of the update: a resumed run plays the same episodes, and neither
    training nor `clew.evaluate` plays any of them. The wrappers' statistics are used as they are,
    and are not updated. `log` is called with a line for every seed whose evaluation is dropped.
    """

    def __init__(self, parts: Parts, log: Callable[[str], None]):
        self._config, self._log = parts.config, log
        self._seconds: float | None = None  # of the newest one; 0 for the first, which compiles
        self._learns = parts.task.statistics() is not None
        self._play = parts.task.evaluator(
            parts.static,
            greedy=parts.config.evaluate_actions == "greedy",
            max_steps=parts.config.evaluate_max_steps,
        )

    def __call__(self, update: int, state: SeedState) -> dict[str, list[float | None]]:
        """Every metric's mean over the episodes, for each seed; None if it was dropped.

        The state, after that many updates, is only read.
        """
        began = time.perf_counter()
        agents = jax.device_get(state.agent)
        statistics = unpacked(state.actor.statistics) if self._learns else None
        if self._config.seeds == 1:
            agents, statistics = jax.tree.map(lambda leaf: leaf[None], (agents, statistics))
        found = []
        for index in range(self._config.seeds):
            one = jax.tree.map(lambda leaf, i=index: leaf[i], (agents, statistics))
            found.append(self._of_seed(self._config.seed + index, update, *one))
        names = metrics_of_all([means for means in found if means] or [{"return": None}])
        self._seconds = 0.0 if self._seconds is None else time.perf_counter() - began
        return {EVALUATED + name: [means.get(name) for means in found] for name in names}

    def seconds_left(self, update: int) -> float:
        """Estimated seconds of all evaluations after this update, each as long as the newest."""
        config = self._config
        steps = (n * config.steps_per_update for n in (config.updates, update))
        total, so_far = (number // config.evaluate_every for number in steps)
        return (self._seconds or 0.0) * (total - so_far)

    def _of_seed(self, seed: int, update: int, params: Any, learned: Any) -> dict[str, Any]:
        config = self._config
        entropy = seed, OWN_KEYS, update
        try:
            played = self._play(params, learned, config.evaluate_episodes, entropy)
        except (EpisodeTooLong, EnvironmentFault) as error:
            cause = str(error)
            if isinstance(error, EpisodeTooLong):
                most = config.evaluate_max_steps
                cause = f"an episode did not end within {most:,} steps (evaluate_max_steps)"
            steps = update * config.steps_per_update
            self._log(f"warning: no evaluation of seed {seed} at step {steps:,}: {cause}")
            return {}
        return {name: finite(float(np.mean(values)), 6) for name, values in played.items()}


def is_due(config: TrainConfig, update: int) -> bool:
    """Whether an evaluation is due at a log point: the first after each `evaluate_every` steps."""
    if not config.evaluate_every:
        return False
    before = (update - 1) // config.log_every * config.log_every
    reached, then = (n * config.steps_per_update // config.evaluate_every for n in (update, before))
    return reached > then
