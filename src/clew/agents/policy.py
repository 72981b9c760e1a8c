"""A trained agent as a plain object with a memory of its own, to be shipped."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from clew.agents.network import Agent
from clew.errors import UserError


class Policy:
    """Chooses actions one observation at a time and remembers what it saw.

        policy = clew.load("runs/maze").policy()
        action = policy(observation, start=True)    # the first observation of an episode
        action = policy(observation)                # every other one

    Args:
        agent: the network.
        greedy: take the likeliest action (deterministic), instead of drawing from the policy.
        seed: of the draws when not greedy.
    """

    def __init__(self, agent: Agent, *, greedy: bool = True, seed: int = 0):
        self._agent = agent
        self._greedy = greedy
        self._key = jax.random.key(seed)
        self._state = agent.init_state()

    def __call__(self, observation: Any, start: bool = False) -> int:
        """The action for this observation.

        Args:
            observation: as many numbers as the agent was trained on.
            start: whether the observation opens an episode; the memory then forgets first.

        Raises:
            UserError: if the observation has another shape.
        """
        x = np.asarray(observation, np.float32)
        expected = (self._agent.memory.input_size,)
        if x.shape != expected:
            raise UserError(
                f"the policy expected an observation of shape {list(expected)}, got {list(x.shape)}"
            )
        self._key, key = jax.random.split(self._key)
        self._state, action = _choose(
            self._agent,
            self._state,
            jnp.asarray(x),
            jnp.asarray(start, bool),
            key,
            greedy=self._greedy,
        )
        return int(action)

    def reset(self) -> None:
        """Forgets everything, as before the first observation."""
        self._state = self._agent.init_state()


@eqx.filter_jit
def _choose(
    agent: Agent,
    state: PyTree[Array],
    x: Float[Array, " n"],
    start: Bool[Array, ""],
    key: PRNGKeyArray,
    *,
    greedy: bool,
) -> tuple[PyTree[Array], Int[Array, ""]]:
    state, logits, _ = agent.step(state, x, start)
    action = jnp.argmax(logits) if greedy else jax.random.categorical(key, logits)
    return state, action
