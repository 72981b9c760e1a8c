"""CartPole: a linear-quadratic controller on a Kalman filter of all observations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.popgym_bounds.bounds import Bounds, Estimate, exact, mean_of
from benchmarks.popgym_bounds.kalman import Belief
from jaxtyping import Bool
from scipy.linalg import solve_discrete_are

from clew.envs.popgym.cartpole import FARTHEST, STEEPEST, WIDEST_START, push
from clew.envs.popgym.noise import Noisy

EPISODES = 1_000
STATE_COSTS, PUSH_COST = np.diag([0.01, 0.1, 10.0, 1.0]), np.array([[1.0]])
PROCESS_NOISE = 1e-6
"""Variance that a step adds to each number, to cover what a linear model leaves out."""

_push = jax.jit(jax.vmap(push))


def cartpole(env: Any) -> Bounds:
    """A pole that is observed exactly, in part, never falls; with noise the optimum is unknown."""
    returns = play(env)
    if not isinstance(env, Noisy):
        assert (returns == 1.0).all()
        return exact(1.0, "a linear controller on the estimated state")
    high = Estimate(1.0), "the largest possible return"
    return Bounds(mean_of(returns), "a Kalman filter and a linear controller", *high)


def play(env: Any) -> np.ndarray:
    """Returns of the controller."""
    rng, sigma = np.random.default_rng(0), getattr(env, "sigma", 0.0)  # foreign: not every task's
    limits, (moves, pushed) = env.observation_space.high, linearised()
    inner = solve_discrete_are(moves, pushed, STATE_COSTS, PUSH_COST)
    gain = np.linalg.solve(PUSH_COST + pushed.T @ inner @ pushed, pushed.T @ inner @ moves)[0]
    state = rng.uniform(-WIDEST_START, WIDEST_START, (EPISODES, 4))
    start = np.eye(4)[None] * WIDEST_START**2 / 3  # covariances are the same in every episode
    belief, steps = Belief(np.zeros_like(state), start), np.zeros(EPISODES)
    upright, places = np.ones(EPISODES, bool), np.array([0, 2])
    for time in range(env.max_steps):
        jacobian = np.eye(4)[places if time == 0 else np.array(env.seen)]
        seen = state @ jacobian.T
        if sigma:
            seen = np.clip(seen + sigma * rng.standard_normal(seen.shape), -limits, limits)
        innovation = seen - belief.means @ jacobian.T
        belief = belief.update(innovation, jacobian, max(sigma, 1e-6) ** 2)
        right: Bool[np.ndarray, " episodes"] = belief.means @ gain < 0
        state = np.where(upright[:, None], _push(state, right), state)
        belief = belief.predict(np.asarray(_push(belief.means, right)), moves, PROCESS_NOISE)
        steps += upright
        upright &= (np.abs(state[:, places]) <= (FARTHEST, STEEPEST)).all(axis=1)
    return steps / env.max_steps


def linearised() -> tuple[np.ndarray, np.ndarray]:
    """How a small state and a push to the right change the next state; left is the opposite."""
    zero, both = jnp.zeros(4), jnp.array([False, True])
    jacobians = [np.asarray(jax.jacobian(push)(zero, right)) for right in both]
    left, right = (np.asarray(push(zero, right)) for right in both)
    return np.mean(jacobians, axis=0, dtype=float), ((right - left) / 2)[:, None].astype(float)
