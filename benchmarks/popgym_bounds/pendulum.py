"""Pendulum: value iteration with the true state, and with the means of a Kalman filter."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.popgym_bounds.bounds import Bounds, mean_of
from benchmarks.popgym_bounds.kalman import Belief, Rows
from jaxtyping import Array, Float

from clew.envs.popgym.pendulum import FASTEST, STRONGEST, WORST, swing

EPISODES = 1_000
ANGLES, SPEEDS = 180, 121
"""Of the grid."""
TORQUES = np.linspace(-STRONGEST, STRONGEST, 13)
PROCESS_NOISE = 1e-4
"""Variance that a step adds to each number, to cover what a linear model leaves out."""

Values = Float[np.ndarray, "angles speeds"]


def _moved(state: Array, torque: Array) -> Array:
    """Angle and speed after a torque."""
    return jnp.stack(swing(state[0], state[1], torque)[:2])


_swing = jax.jit(swing)
_means, _jacobians = jax.jit(jax.vmap(_moved)), jax.jit(jax.vmap(jax.jacfwd(_moved)))


def pendulum(env: Any) -> Bounds:
    """Between torques for an estimated state, and the value with the true state."""
    costs = least_costs(env.max_steps)
    angle, speed = _initial_states(np.random.default_rng(1), 20 * EPISODES)
    best = _interpolated(costs, angle, speed)
    return Bounds(
        mean_of(play(env, costs)),
        "computed torque for the estimated state",
        mean_of(1.0 - 2.0 * best / WORST / env.max_steps),
        "value iteration on a grid for an agent that sees the state: computed, not proved",
    )


@functools.cache
def least_costs(steps: int) -> Values:
    """The least cost of this many steps, by value iteration with linear interpolation."""
    angle = 2 * math.pi * np.arange(ANGLES) / ANGLES - math.pi
    speed = np.linspace(-FASTEST, FASTEST, SPEEDS)
    *following, cost = _after_torques(*np.meshgrid(angle, speed, indexing="ij"))
    places, weights = _corners(*following)
    costs = np.zeros((ANGLES, SPEEDS))
    for _ in range(steps):
        costs = (cost + (costs.ravel()[places] * weights).sum(axis=0)).min(axis=-1)
    return costs


def play(env: Any, costs: Values) -> np.ndarray:
    """Returns of the best torque for the means of an extended Kalman filter."""
    rng, sigma = np.random.default_rng(0), getattr(env, "sigma", 1e-6)  # foreign: not every task's
    angle, speed = _initial_states(rng, EPISODES)
    belief, total = None, np.zeros(EPISODES)
    for _ in range(env.max_steps):
        seen = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        seen = np.clip(seen + sigma * rng.standard_normal(seen.shape), -1.0, 1.0)
        belief = _first_belief(seen, sigma) if belief is None else _updated(belief, seen, sigma)
        *following, cost = _after_torques(*belief.means.T)
        torque = TORQUES[(cost + _interpolated(costs, *following)).argmin(axis=1)]
        angle, speed, cost = map(np.asarray, _swing(angle, speed, torque))
        total += cost
        means, jacobians = _means(belief.means, torque), _jacobians(belief.means, torque)
        belief = belief.predict(np.asarray(means), np.asarray(jacobians), PROCESS_NOISE)
    return 1.0 - 2.0 * total / WORST / env.max_steps


def _first_belief(seen: Rows, sigma: float) -> Belief:
    means = np.stack([np.arctan2(seen[:, 1], seen[:, 0]), np.zeros(len(seen))], axis=1)
    return Belief(means, np.tile(np.diag([sigma**2, 1.0 / 3.0]), (len(seen), 1, 1)))


def _updated(belief: Belief, seen: Rows, sigma: float) -> Belief:
    cosine, sine = np.cos(belief.means[:, 0]), np.sin(belief.means[:, 0])
    jacobian = np.zeros((len(seen), 2, 2))
    jacobian[:, 0, 0], jacobian[:, 1, 0] = -sine, cosine
    return belief.update(seen - np.stack([cosine, sine], axis=1), jacobian, sigma**2)


def _after_torques(angle: np.ndarray, speed: np.ndarray) -> list[np.ndarray]:
    """Angle, speed and cost after each of `TORQUES`, in a last axis."""
    return [np.asarray(part) for part in _swing(angle[..., None], speed[..., None], TORQUES)]


def _corners(angle: np.ndarray, speed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The four points of the grid around a state, and their weights."""
    x = (angle + math.pi) / (2 * math.pi) % 1.0 * ANGLES
    y = (speed + FASTEST) / (2 * FASTEST) * (SPEEDS - 1)
    row, column = x.astype(int), np.minimum(y.astype(int), SPEEDS - 2)
    x, y = x - row, y - column
    first, second = row % ANGLES * SPEEDS + column, (row + 1) % ANGLES * SPEEDS + column
    weights = np.stack([(1 - x) * (1 - y), (1 - x) * y, x * (1 - y), x * y])
    return np.stack([first, first + 1, second, second + 1]), weights


def _interpolated(costs: Values, angle: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Interpolated costs of states between those of the grid."""
    places, weights = _corners(angle, speed)
    return (costs.ravel()[places] * weights).sum(axis=0)


def _initial_states(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.uniform(-math.pi, math.pi, count), rng.uniform(-1.0, 1.0, count)
