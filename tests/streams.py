"""Streams of episodes under given actions or by a script, for tests of code that runs over them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from clew.agents.heads import ActorCritic, MakeHeads
from clew.agents.network import Agent, NetworkConfig, make_agent
from clew.envs import AutoReset, Environment, TimeStep, TMaze

BATCH = 32


def agent_on(
    stream: Any,
    memory: str = "gru",
    options: dict[str, Any] | None = None,
    seed: int = 0,
    make_heads: MakeHeads = ActorCritic,
) -> Agent:
    """A small agent for a stream's observations and actions; by default a GRU of 8."""
    return make_agent(
        memory,
        {"hidden_size": 8} if options is None else options,
        observation_space=stream.observation_space,
        action_space=stream.action_space,
        network=NetworkConfig(head_size=8),
        key=jax.random.key(seed),
        make_heads=make_heads,
    )


def short_maze() -> AutoReset:
    """A T-Maze whose terminations, truncations and starts fall anywhere in a rollout."""
    return AutoReset(TMaze(corridor_length=2, time_limit=4, on_time_limit="truncate"))


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


class Spaces:
    """Flat observations and discrete actions."""

    observation_space = Environment.observation_space
    action_space = Environment.action_space

    def __init__(self, observation_size: int, num_actions: int):
        self.observation_size, self.num_actions = observation_size, num_actions


class Scripted(eqx.Module):
    """A stream of random observations that starts episodes wherever a table says so.

    It compiles quickly, and its starts fall in patterns that no task has: one after another, none
    for long, at a rollout's edge.
    """

    observation: Array
    start: Array
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    observation_space = AutoReset.observation_space
    action_space = AutoReset.action_space
    masks_actions = False

    @property
    def env(self):
        """The object with the stream's spaces."""
        return Spaces(self.observation_size, self.num_actions)

    @classmethod
    def random(cls, seed: int = 0) -> "Scripted":
        """31 lines, with 3 starts one after another, and 12 lines without any."""
        rng = np.random.default_rng(seed)
        observation = rng.normal(size=(31, 5)).astype(np.float32)
        start = rng.random(31) < 0.3
        start[3:6], start[10:22] = True, False
        return cls(jnp.asarray(observation), jnp.asarray(start), 5, 3)

    def reset(self, key):
        """Begins anywhere in the table."""
        time = jax.random.randint(key, (), 0, len(self.start))
        return time, self._seen(time, jnp.ones((), bool))

    def step(self, state, action, key):
        """Reads the next line of the table."""
        time = (state + 1) % len(self.start)
        return time, self._seen(time, self.start[time])

    def _seen(self, time, start):
        zero, false = jnp.zeros((), jnp.float32), jnp.zeros((), bool)
        return TimeStep(self.observation[time], zero, zero + 1, start, false, false, {})
