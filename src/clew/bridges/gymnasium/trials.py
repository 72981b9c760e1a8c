"""Trials of a Gymnasium environment: several episodes with one random draw, as one episode."""

from typing import Any

import gymnasium
import numpy as np

ENDED = "episode_ended"
"""Key of `info` after a step that ended an episode of a trial and opened the next one."""
NEW_TRIAL = "new_trial"
"""Option of `reset` for environments with `metadata["trials"] = True`."""
SEEDS = 2**31


class TrialEpisodes(gymnasium.Wrapper):
    """Joins the episodes of a trial into one episode; see `clew.envs.trials` for the rules.

    An environment can decide itself what stays the same within a trial: one with
    `metadata["trials"] = True` is reset with `options={"new_trial": True}` at the beginning of a
    trial and with False for its other episodes, and with a seed only if `reset` was given one. Any
    other environment is reset with one seed for all episodes of a trial and a new one for each
    trial, so that all of its random draws repeat, including noise.

    The step that ends an episode within a trial, by termination or truncation, returns its reward,
    the first observation of the next episode and `info["episode_ended"]`. The last end terminates.

    Args:
        env: the environment, with wrappers for single episodes, such as a time limit.
        episodes: number of episodes of a trial, at least 2.
        memory: False leaves every episode separate, as a control; see `SeparateEpisodes`.
    """

    def __init__(self, env: gymnasium.Env, episodes: int, memory: bool = True):
        super().__init__(env)
        self.episodes, self.memory = episodes, memory
        self._declared = bool(env.metadata.get("trials"))
        self._rng: np.random.Generator | None = None
        self._seed = self._episode = 0
        self._over = False
        self._options: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Opens a trial; without memory it opens the trial's next episode after one has ended."""
        goes_on = self._over and seed is None and self._episode + 1 < self.episodes
        if goes_on and not self.memory:
            self._episode += 1
            return self._open(False, None)
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(seed)
        self._seed, self._episode = int(self._rng.integers(SEEDS)), 0
        self._options = dict(options or {})
        return self._open(True, seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes an action; opens the trial's next episode if one ended."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._over = bool(terminated or truncated)
        if not self._over or not self.memory:
            return observation, reward, terminated, truncated, info
        if self._episode + 1 >= self.episodes:
            return observation, reward, True, False, info
        self._episode += 1
        observation, opened = self._open(False, None)
        return observation, reward, False, False, {**opened, ENDED: True}

    def _open(self, new: bool, seed: int | None) -> tuple[Any, dict[str, Any]]:
        self._over = False
        if self._declared:
            return self.env.reset(seed=seed, options={**self._options, NEW_TRIAL: new})
        return self.env.reset(seed=self._seed, options=self._options or None)
