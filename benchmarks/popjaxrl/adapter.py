"""A clew task written in JAX in the form of gymnax 0.0.6, for popjaxrl's trainer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnax.environments.environment import Environment, EnvParams
from gymnax.environments.spaces import Box as TheirBox
from gymnax.environments.spaces import Discrete as TheirDiscrete

from clew.agents.encoders import EncoderConfig, make_encoder
from clew.envs.base import Environment as Task


class AsGymnax(Environment):
    """A task with flat observations and numbered choices.

    Observed integers are one-hot, as in popjaxrl's own copies and in the encoders of clew's agents.
    Several choices, such as a row and a column, become one, as in popjaxrl's copy of MineSweeper.
    gymnax 0.0.6 has no truncation: every end of an episode is done.
    """

    def __init__(self, task: Task):
        self.task = task
        config = EncoderConfig(encoder="none")
        self.encode = make_encoder(task.observation_space, config, key=jax.random.key(0))

    @property
    def default_params(self) -> EnvParams:
        """No parameters; the task has its own."""
        return EnvParams(max_steps_in_episode=0)

    def observation_space(self, params: Any) -> Any:
        """Flat numbers."""
        ones = np.ones(self.encode.output_size, np.float32)
        return TheirBox(-ones, ones, ones.shape, jnp.float32)

    def action_space(self, params: Any) -> Any:
        """One number: a choice, or a value within the bounds of the task's only one."""
        space = self.task.action_space
        if isinstance(space, Box):
            return TheirBox(float(space.low[0]), float(space.high[0]), (1,), jnp.float32)
        return TheirDiscrete(int(np.prod(sizes(space))))

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]:
        """Opens an episode."""
        state, observation = self.task.reset(key)
        return self.encode(observation), state

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
        """One action."""
        space = self.task.action_space
        if isinstance(space, MultiDiscrete):
            action = jnp.stack(jnp.unravel_index(action, sizes(space)))
        state, step = self.task.step(state, action, key)
        return (
            self.encode(step.observation),
            state,
            step.reward,
            step.terminated | step.truncated,
            {},
        )


def sizes(space: Any) -> tuple[int, ...]:
    """The number of values of each choice."""
    if isinstance(space, Discrete):
        return (int(space.n),)
    return tuple(int(n) for n in space.nvec)
