"""Wrappers that work on all environments at once, on arrays [B, ...]; some have statistics."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from clew.bridges.gymnasium.spaces import Array, Arrays
from clew.envs.spaces import (
    BARE,
    PREVIOUS_ACTION,
    PREVIOUS_ENDED,
    PREVIOUS_REWARD,
    encode_actions,
    encoded_actions,
    float_boxes,
    kept,
    named_entries,
    whole_entries,
)
from clew.envs.wrappers import WrapperConfig, observed
from clew.errors import UserError


@dataclass
class RunningMoments:
    """Mean and variance of all rows so far, in float64, by merging batches.

    With n, m, S the count, mean and sum of squared deviations so far and n', m', S' those of a
    batch, d = m' - m:

        m <- m + d n' / (n + n')        S <- S + S' + d^2 n n' / (n + n')        n <- n + n'

    Source: Chan, Golub and LeVeque (1983), equations 2.1. Gymnasium's `RunningMeanStd` starts with
    an artificial mean of 0 and variance of 1 with the weight of 1e-4 rows; this is exact.
    """

    mean: Array
    m2: Array
    count: float = 0.0

    @staticmethod
    def of(shape: tuple[int, ...]) -> "RunningMoments":
        """Moments before any rows of this shape."""
        return RunningMoments(np.zeros(shape), np.zeros(shape))

    def update(self, rows: Array) -> None:
        """Adds rows [n, ...]."""
        n = len(rows)
        if n == 0:
            return
        rows = rows.astype(np.float64)
        mean = rows.mean(axis=0)
        total = self.count + n
        away = mean - self.mean
        self.mean = self.mean + away * (n / total)
        squares = ((rows - mean) ** 2).sum(axis=0)
        self.m2 = self.m2 + squares + away**2 * (self.count * n / total)
        self.count = total

    def variance(self) -> Array:
        """Sum of squared deviations over the count; 1 before any rows."""
        return self.m2 / self.count if self.count else np.ones_like(self.m2)


EPSILON = 1e-8


@dataclass
class VectorWrappers:
    """The vector-wise wrappers of a `WrapperConfig`, with their statistics.

    Args:
        config: which wrappers.
        seen: the environments' observation space, from `adapt_observation`.
        actions: their action space, from `adapt_action`.
        num_envs: B.
        frozen: whether the statistics are fixed, as in evaluation.
    """

    config: WrapperConfig
    seen: spaces.Space
    actions: spaces.Space
    num_envs: int
    frozen: bool = False
    moments: dict[str, RunningMoments] = field(default_factory=dict)
    count: float = 0.0
    """Number of rewards in `mean_square`."""
    mean_square: float = 0.0
    """Mean square of the discounted return."""

    def __post_init__(self) -> None:
        self.space = observed(self.seen, self.actions, self.config)
        self.returns = np.zeros(self.num_envs)
        self._whole = spaces.Dict(whole_entries(self.seen) if self.config.whole else {})
        if self.config.normalise_observations:
            boxes = float_boxes(kept(self.seen, self.config.keep)) | float_boxes(self._whole)
            self.moments = {name: RunningMoments.of(box.shape) for name, box in boxes.items()}

    def learn(self, observations: Arrays, rows: Array | None = None) -> None:
        """Adds observations to the running moments: all rows, or those of a mask [B]."""
        if self.frozen or not self.moments:
            return
        for name, array in named_entries(self._keep(observations)).items():
            if name in self.moments:
                self.moments[name].update(array if rows is None else array[rows])

    def noisy(self, observations: Arrays, rng: np.random.Generator) -> Arrays:
        """The environments' observations with noise, beside the whole ones if these are shown."""
        named = dict(named_entries(observations))
        for name in float_boxes(self.seen) if self.config.noise else ():
            drawn = rng.standard_normal(named[name].shape, np.float32)
            named[name] = named[name] + np.float32(self.config.noise) * drawn
        if self.config.whole:
            return {**named, **whole_entries(observations)}
        return named if isinstance(observations, dict) else named[BARE]

    def blanks(self, rng: np.random.Generator) -> Array | None:
        """Which observations [B] are blank; None for none of them."""
        flicker = self.config.flicker
        return rng.random(self.num_envs) < flicker if flicker else None

    def observe(
        self,
        observations: Arrays,
        actions: Array | None,
        rewards: Array,
        starts: Array,
        ended: Array | None = None,
        blank: Array | None = None,
    ) -> Arrays:
        """The agent's observations.

        Args:
            observations: [B, ...], adapted.
            actions: the agent's previous actions; None before the first ones.
            rewards: [B], from `reward`.
            starts: [B], which observations open an episode.
            ended: [B], which actions ended an episode of a trial; None for none of them.
            blank: [B], which observations are blank; None for none of them.
        """
        observations = self._normalise(self._keep(observations))
        if blank is not None:
            observations = _blanked(observations, blank, self._whole.keys())
        shown = self.config.shows_previous
        if not shown:
            return observations
        if actions is None:
            taken = np.zeros((self.num_envs, *encoded_actions(self.actions).shape), np.float32)
        else:
            taken = encode_actions(self.actions, actions)
            taken[starts] = 0.0
        ends = np.zeros_like(starts) if ended is None else ended & ~starts
        step = {
            PREVIOUS_ACTION: taken,
            PREVIOUS_REWARD: np.where(starts, np.float32(0), rewards)[:, None],
            PREVIOUS_ENDED: ends.astype(np.float32)[:, None],
        }
        return {**named_entries(observations), **{name: step[name] for name in shown}}

    def reward(self, rewards: Array, counted: Array, ended: Array) -> Array:
        """Rewards [B] float32 that the agent learns from.

        Args:
            rewards: the environments' own rewards.
            counted: which of them followed an action within an episode.
            ended: which environments ended an episode.
        """
        config = self.config
        if config.normalise_rewards:
            rewards = self._normalise_rewards(rewards, counted, ended)
        if config.reward_scale != 1.0:
            rewards = rewards * config.reward_scale
        if config.reward_clip is not None:
            rewards = np.clip(rewards, -config.reward_clip, config.reward_clip)
        return rewards.astype(np.float32, copy=False)

    def begin(self) -> None:
        """Restarts all episodes; statistics stay."""
        self.returns[:] = 0.0

    def state(self) -> dict[str, Any]:
        """The statistics, as a tree of float64 arrays; empty if there are none."""
        state: dict[str, Any] = {}
        if self.moments:
            state["observation"] = {
                name: {"count": np.array(m.count), "mean": m.mean.copy(), "m2": m.m2.copy()}
                for name, m in self.moments.items()
            }
        if self.config.normalise_rewards:
            state["reward"] = {
                "count": np.array(self.count),
                "mean_square": np.array(self.mean_square),
            }
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the statistics that `state` returned.

        Raises:
            UserError: they are from other wrappers or other observations.
        """
        found, expected = (jax.tree.map(np.shape, tree) for tree in (state, self.state()))
        if found != expected:
            raise UserError(
                f"the wrappers' state has {found}, expected {expected}: it comes from other "
                "wrappers or from another environment"
            )
        for name, part in state.get("observation", {}).items():
            mean, m2 = (np.array(part[key], np.float64) for key in ("mean", "m2"))
            self.moments[name] = RunningMoments(mean, m2, float(part["count"]))
        if "reward" in state:
            self.count = float(state["reward"]["count"])
            self.mean_square = float(state["reward"]["mean_square"])

    def _keep(self, observations: Arrays) -> Arrays:
        if self.config.keep is None:
            return observations
        if isinstance(observations, dict):
            return {**observations, BARE: observations[BARE][:, self.config.keep]}
        return observations[:, self.config.keep]

    def _normalise(self, observations: Arrays) -> Arrays:
        if not self.moments:
            return observations
        clip, named = self.config.observation_clip, dict(named_entries(observations))
        for name, moments in self.moments.items():
            scaled = (named[name] - moments.mean) / np.sqrt(moments.variance() + EPSILON)
            named[name] = np.clip(scaled, -clip, clip).astype(np.float32)
        return named if isinstance(observations, dict) else named[BARE]

    def _normalise_rewards(self, rewards: Array, counted: Array, ended: Array) -> Array:
        self.returns = np.where(
            counted, rewards + self.config.reward_gamma * self.returns, self.returns
        )
        if not self.frozen:
            squares, n = self.returns[counted] ** 2, int(counted.sum())
            self.count += n
            if n:
                self.mean_square += (squares.mean() - self.mean_square) * (n / self.count)
        self.returns[ended] = 0.0
        scale = np.sqrt(self.mean_square + EPSILON) if self.count else 1.0
        return rewards / scale


def _blanked(observations: Arrays, blank: Array, spared: Set[str]) -> Arrays:
    named = dict(named_entries(observations))
    for name in named.keys() - spared:
        named[name] = named[name].copy()
        named[name][blank] = 0
    return named if isinstance(observations, dict) else named[BARE]
