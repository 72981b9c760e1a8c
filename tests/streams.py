"""Streams of episodes under given actions, for tests of environments."""

import jax
import jax.numpy as jnp
import numpy as np

from clew.envs import AutoReset, Environment, TimeStep

BATCH = 32


def roll(env: Environment, actions: np.ndarray, seed: int = 0) -> TimeStep:
    """Time steps [time + 1, batch] of a stream under given actions [time, batch]."""
    stream = AutoReset(env)
    time, batch = actions.shape
    keys = jax.random.split(jax.random.key(seed), (time + 1, batch))

    @jax.jit
    def run(keys, actions):
        state, first = jax.vmap(stream.reset)(keys[0])
        _, rest = jax.lax.scan(
            lambda state, inputs: jax.vmap(stream.step)(state, *inputs), state, (actions, keys[1:])
        )
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)

    return jax.tree.map(np.asarray, run(keys, jnp.asarray(actions, jnp.int32)))
