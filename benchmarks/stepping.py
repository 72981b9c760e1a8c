"""Steps per second with random actions: of a task in JAX, and of a Gymnasium environment."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
from gymnasium import spaces

from clew.envs import AutoReset, Environment
from clew.lab.bench.timing import Estimate, by_turns, estimate, ratio, seconds_of


def random_action(space: spaces.Space, key: Any) -> Any:
    """An action drawn uniformly."""
    if isinstance(space, spaces.Box):
        return jax.random.uniform(key, space.shape, minval=space.low, maxval=space.high)
    if isinstance(space, spaces.MultiDiscrete):
        return jax.random.randint(key, (len(space.nvec),), 0, jnp.asarray(space.nvec, jnp.int32))
    assert isinstance(space, spaces.Discrete)
    return jax.random.randint(key, (), 0, int(space.n))


def compiled_rate(task: Environment, envs: int, steps: int) -> Callable[[], float]:
    """Measures a task's steps per second, so many environments side by side; compiles first."""
    stream = AutoReset(task)

    def one(state: Any, key: Any) -> tuple[Any, Any]:
        action = random_action(stream.action_space, jax.random.fold_in(key, 1))
        after, seen = stream.step(state, action, key)
        return after, (seen.observation, seen.reward)

    @jax.jit
    def play(states: Any, key: Any) -> Any:
        keys = jax.random.split(key, (steps, envs))
        return jax.lax.scan(lambda states, keys: jax.vmap(one)(states, keys), states, keys)

    states, _ = jax.vmap(stream.reset)(jax.random.split(jax.random.key(0), envs))
    # Environments that opened together stay together where episodes have one length; here they
    # play on from one measurement to the next, as in a run.
    kept = {"states": states, "turn": 0}

    def measure() -> float:
        kept["turn"] += 1
        return envs * steps / seconds_of(partial(advance, kept))

    def advance(kept: dict[str, Any]) -> None:
        kept["states"], _ = jax.block_until_ready(
            play(kept["states"], jax.random.key(kept["turn"]))
        )

    return measure


def gymnasium_rate(env: gymnasium.Env, steps: int) -> Callable[[], float]:
    """Measures an environment's steps per second, with the opening of episodes."""
    env.action_space.seed(0)
    env.reset(seed=0)

    def play() -> None:
        for _ in range(steps):
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

    return lambda: steps / seconds_of(play)


def beside(
    sides: Mapping[str, Callable[[], float]], turns: int
) -> tuple[dict[str, Estimate], Estimate]:
    """The rates of two sides by turns, and how many times the second's the first's is."""
    found = by_turns(sides, turns, warm_up=True)
    return {side: estimate(values) for side, values in found.items()}, ratio(*found.values())
