"""Poles and pendulums: controllers of who estimates the state from all that was seen."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.popgym_bounds.bracket import Bracket, Estimate, exact, mean_of
from jaxtyping import Array, Bool, Float
from scipy.linalg import solve_discrete_are

from clew.envs.popgym.cartpole import FARTHEST, STEEPEST, WIDEST_START, push
from clew.envs.popgym.noise import Noisy
from clew.envs.popgym.pendulum import FASTEST, STRONGEST, WORST, swing

EPISODES = 1_000
ANGLES, SPEEDS = 180, 121
"""Of the grid for the pendulum."""
TORQUES = np.linspace(-STRONGEST, STRONGEST, 13)
STATE_COSTS, PUSH_COST = np.diag([0.01, 0.1, 10.0, 1.0]), np.array([[1.0]])
DRIFT = {"pole": 1e-6, "pendulum": 1e-4}
"""Variance that a step adds to each number, for what is left out of a linear model."""


def _moved(state: Array, torque: Array) -> Array:
    """Angle and speed after a torque."""
    return jnp.stack(swing(state[0], state[1], torque)[:2])


_push, _swing = jax.jit(jax.vmap(push)), jax.jit(swing)
_swing_means, _swing_slopes = jax.jit(jax.vmap(_moved)), jax.jit(jax.vmap(jax.jacfwd(_moved)))

Rows = Float[np.ndarray, "episodes numbers"]


class Belief(NamedTuple):
    """What is known of the state in every episode: means and covariances."""

    means: Rows
    covariances: Float[np.ndarray, "episodes numbers numbers"]

    def updated(self, error: Rows, slopes: np.ndarray, variance: float) -> "Belief":
        """With an observation: its difference from what was expected, how it depends on the
        state, and the variance of its noise (Kalman, 1960)."""
        spread = slopes @ self.covariances
        gain = np.linalg.solve(spread @ slopes.mT + variance * np.eye(error.shape[1]), spread).mT
        means = self.means + (gain @ error[..., None])[..., 0]
        return Belief(means, self.covariances - gain @ slopes @ self.covariances)

    def predicted(self, means: Rows, slopes: np.ndarray, drift: float) -> "Belief":
        """A step later."""
        covariances = slopes @ self.covariances @ slopes.mT
        return Belief(means, covariances + drift * np.eye(means.shape[1]))


def cartpole(env: Any) -> Bracket:
    """A pole of which a part is seen exactly is never dropped; of the noise nothing is known."""
    returns = balanced(env)
    if not isinstance(env, Noisy):
        assert (returns == 1.0).all()
        return exact(1.0, "a linear controller of an estimated state")
    high = Estimate(1.0), "the largest return that there is"
    return Bracket(mean_of(returns), "a Kalman filter and a linear controller", *high)


def balanced(env: Any) -> np.ndarray:
    """Returns of a linear controller of the Kalman filter's means."""
    rng, sigma = np.random.default_rng(0), getattr(env, "sigma", 0.0)  # foreign: not every task's
    limits, (moves, pushed) = env.observation_space.high, _linear_pole()
    inner = solve_discrete_are(moves, pushed, STATE_COSTS, PUSH_COST)
    gain = np.linalg.solve(PUSH_COST + pushed.T @ inner @ pushed, pushed.T @ inner @ moves)[0]
    state = rng.uniform(-WIDEST_START, WIDEST_START, (EPISODES, 4))
    start = np.eye(4)[None] * WIDEST_START**2 / 3  # the same in every episode, as all that follow
    belief, steps = Belief(np.zeros_like(state), start), np.zeros(EPISODES)
    upright, places = np.ones(EPISODES, bool), np.array([0, 2])
    for time in range(env.max_steps):
        slopes = np.eye(4)[places if time == 0 else np.array(env.seen)]
        seen = state @ slopes.T
        if sigma:
            seen = np.clip(seen + sigma * rng.standard_normal(seen.shape), -limits, limits)
        belief = belief.updated(seen - belief.means @ slopes.T, slopes, max(sigma, 1e-6) ** 2)
        right: Bool[np.ndarray, " episodes"] = belief.means @ gain < 0
        state = np.where(upright[:, None], _push(state, right), state)
        belief = belief.predicted(np.asarray(_push(belief.means, right)), moves, DRIFT["pole"])
        steps += upright
        upright &= (np.abs(state[:, places]) <= (FARTHEST, STEEPEST)).all(axis=1)
    return steps / env.max_steps


def _linear_pole() -> tuple[np.ndarray, np.ndarray]:
    """How a small state and a push to the right change the next state; left is the opposite."""
    zero, both = jnp.zeros(4), jnp.array([False, True])
    slopes = [np.asarray(jax.jacobian(push)(zero, right)) for right in both]
    left, right = (np.asarray(push(zero, right)) for right in both)
    return np.mean(slopes, axis=0, dtype=float), ((right - left) / 2)[:, None].astype(float)


def pendulum(env: Any) -> Bracket:
    """Between a swing by what is known of the state, and the value of who sees it."""
    values = least_costs(env.max_steps)
    angle, speed = _starts(np.random.default_rng(1), 20 * EPISODES)
    best = _between(values, angle, speed)
    return Bracket(
        mean_of(swung(env, values)),
        "the computed torque for an estimated state",
        mean_of(1.0 - 2.0 * best / WORST / env.max_steps),
        "value iteration on a grid, for who sees the state: computed, not proved",
    )


@functools.cache
def least_costs(steps: int) -> Float[np.ndarray, "angles speeds"]:
    """The least cost of so many steps, by value iteration with linear interpolation."""
    angle = 2 * math.pi * np.arange(ANGLES) / ANGLES - math.pi
    speed = np.linspace(-FASTEST, FASTEST, SPEEDS)
    grid = np.meshgrid(angle, speed, indexing="ij")
    *following, cost = _all_torques(*grid)
    places, weights = _corners(*following)
    values = np.zeros((ANGLES, SPEEDS))
    for _ in range(steps):
        values = (cost + (values.ravel()[places] * weights).sum(axis=0)).min(axis=-1)
    return values


def swung(env: Any, values: Float[np.ndarray, "angles speeds"]) -> np.ndarray:
    """Returns of the torque that is best for the means of an extended Kalman filter."""
    rng, sigma = np.random.default_rng(0), getattr(env, "sigma", 1e-6)  # foreign: not every task's
    angle, speed = _starts(rng, EPISODES)
    belief, total = None, np.zeros(EPISODES)
    for _ in range(env.max_steps):
        seen = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        seen = np.clip(seen + sigma * rng.standard_normal(seen.shape), -1.0, 1.0)
        belief = _first_belief(seen, sigma) if belief is None else _observed(belief, seen, sigma)
        *following, cost = _all_torques(*belief.means.T)
        torque = TORQUES[(cost + _between(values, *following)).argmin(axis=1)]
        angle, speed, cost = map(np.asarray, _swing(angle, speed, torque))
        total += cost
        there, slopes = _swing_means(belief.means, torque), _swing_slopes(belief.means, torque)
        belief = belief.predicted(np.asarray(there), np.asarray(slopes), DRIFT["pendulum"])
    return 1.0 - 2.0 * total / WORST / env.max_steps


def _first_belief(seen: Rows, sigma: float) -> Belief:
    means = np.stack([np.arctan2(seen[:, 1], seen[:, 0]), np.zeros(len(seen))], axis=1)
    return Belief(means, np.tile(np.diag([sigma**2, 1.0 / 3.0]), (len(seen), 1, 1)))


def _observed(belief: Belief, seen: Rows, sigma: float) -> Belief:
    cosine, sine = np.cos(belief.means[:, 0]), np.sin(belief.means[:, 0])
    slopes = np.zeros((len(seen), 2, 2))
    slopes[:, 0, 0], slopes[:, 1, 0] = -sine, cosine
    return belief.updated(seen - np.stack([cosine, sine], axis=1), slopes, sigma**2)


def _all_torques(angle: np.ndarray, speed: np.ndarray) -> list[np.ndarray]:
    """Angle, speed and cost after each of `TORQUES`, in a last axis."""
    return [np.asarray(part) for part in _swing(angle[..., None], speed[..., None], TORQUES)]


def _corners(angle: np.ndarray, speed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The four places of the grid around a state, and their weights."""
    x = (angle + math.pi) / (2 * math.pi) % 1.0 * ANGLES
    y = (speed + FASTEST) / (2 * FASTEST) * (SPEEDS - 1)
    row, column = x.astype(int), np.minimum(y.astype(int), SPEEDS - 2)
    x, y = x - row, y - column
    first, second = row % ANGLES * SPEEDS + column, (row + 1) % ANGLES * SPEEDS + column
    weights = np.stack([(1 - x) * (1 - y), (1 - x) * y, x * (1 - y), x * y])
    return np.stack([first, first + 1, second, second + 1]), weights


def _between(values: np.ndarray, angle: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Values at states, between those of the grid."""
    places, weights = _corners(angle, speed)
    return (values.ravel()[places] * weights).sum(axis=0)


def _starts(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.uniform(-math.pi, math.pi, count), rng.uniform(-1.0, 1.0, count)
