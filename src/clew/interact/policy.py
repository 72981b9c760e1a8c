"""A trained agent as a plain object with a memory of its own, to be shipped."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from clew.agents.encoders import Dense
from clew.agents.network import Agent
from clew.errors import UserError


class Policy:
    """Chooses actions one observation at a time and remembers what it saw.

        policy = clew.Policy(clew.load("runs/maze"))
        action = policy(observation, start=True)    # the first observation of an episode
        action = policy(observation)                # every other one

    Args:
        agent: the network.
        greedy: take the most probable action (deterministic), instead of sampling from the policy.
        seed: of the samples when not greedy.
    """

    def __init__(self, agent: Agent, *, greedy: bool = True, seed: int = 0):
        self._agent = agent
        self._greedy = greedy
        self._key = jax.random.key(seed)
        self._state = agent.init_state()

    def __call__(self, observation: Any, start: bool = False) -> Any:
        """The action for this observation.

        Args:
            observation: of the kind that the agent was trained on: an array, or a dict of arrays.
            start: whether the observation opens an episode; the memory then forgets first.

        Returns:
            What an environment takes: an int for a discrete action, otherwise an array.

        Raises:
            UserError: if the observation has another shape.
        """
        x = jax.tree.map(np.asarray, observation, is_leaf=lambda leaf: isinstance(leaf, list))
        encoder = self._agent.encoder
        if isinstance(encoder, Dense):
            x = np.asarray(x, np.float32)
            if x.shape != encoder.shape:
                raise UserError(
                    f"the policy expected an observation of shape {list(encoder.shape)}, got "
                    f"{list(x.shape)}"
                )
        self._key, key = jax.random.split(self._key)
        self._state, action = _choose(
            self._agent,
            self._state,
            x,
            jnp.asarray(start, bool),
            key,
            greedy=self._greedy,
        )
        taken = self._agent.distribution.decode(np.asarray(action))
        return int(taken) if np.ndim(taken) == 0 else taken

    def reset(self) -> None:
        """Forgets everything, as before the first observation."""
        self._state = self._agent.init_state()


@eqx.filter_jit
def _choose(
    agent: Agent,
    state: PyTree[Array],
    x: PyTree[Array],
    start: Bool[Array, ""],
    key: PRNGKeyArray,
    *,
    greedy: bool,
) -> tuple[PyTree[Array], Array]:
    state, logits, _ = agent.step(state, x, start)
    return state, agent.distribution.choose(logits, key, greedy=greedy)
