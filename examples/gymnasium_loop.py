"""A2C on a Gymnasium vector environment, in your own training loop.

Everything about memory is clew's, but the loop is not: environments step in Python and may be any
Gymnasium environments. Comments mark the two common mistakes: when the memory is reset, and which
steps are not transitions.

    python examples/gymnasium_loop.py
"""

from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import clew
from clew.agents.learners.a2c import A2C
from clew.agents.learners.base import init_optimiser
from clew.agents.network import Agent, NetworkConfig
from clew.agents.trajectory import Rollout, Trajectory, refresh_all

TASK = "clew:clew/TMaze-v0"
SETTINGS = clew.A2CConfig(num_envs=8, rollout_length=32, learning_rate=3e-3)


class Seen(NamedTuple):
    """The inputs of the next step of the loop."""

    observation: np.ndarray
    start: np.ndarray
    last: np.ndarray
    memory: Any
    key: jax.Array


@eqx.filter_jit
def act(agent: Agent, seen: Seen) -> tuple[Any, ...]:
    """Reads one observation of every environment and samples an action for each."""
    observation, start = jnp.asarray(seen.observation), jnp.asarray(seen.start)
    memory, outputs = jax.vmap(agent.step)(seen.memory, observation, start)
    logits, value = outputs.logits, outputs.value
    key, draw = jax.random.split(seen.key)
    action = jax.random.categorical(draw, logits)
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], axis=1)[:, 0]
    return memory, action, log_prob, value, key


def rollout(
    envs: gymnasium.vector.VectorEnv, agent: Agent, seen: Seen
) -> tuple[Rollout, Seen, list[bool]]:
    """Steps all environments `rollout_length` times.

    Returns:
        The rollout for the learner, the inputs of the next rollout, and for every episode that
        ended whether it was a success.
    """
    state0 = seen.memory  # before the first observation, not after it
    rows, successes = [], []
    for _ in range(SETTINGS.rollout_length):
        memory, action, log_prob, value, key = act(agent, seen)
        observation, reward, terminated, truncated, info = envs.step(np.asarray(action))
        rows.append((seen, action, reward.astype(np.float32), terminated, log_prob, value))
        ended = terminated | truncated
        successes += [bool(s) for s in info["success"][ended & ~seen.last]]
        # Gymnasium (from 1.0) shows the final observation first. The step after it ignores its
        # action and opens the next episode: that observation is a start, that step no transition.
        seen = Seen(observation, seen.last, ended & ~seen.last, memory, key)
    befores, actions, rewards, terminations, log_probs, values = zip(*rows, strict=True)
    flow = [*befores, seen]
    trajectory = Trajectory(
        observation=jnp.stack([s.observation for s in flow]),
        start=jnp.stack([s.start for s in flow]),
        last=jnp.stack([s.last for s in flow]),
        action=jnp.stack(actions),
        reward=jnp.stack(rewards),
        # Only a termination means that nothing follows; a truncation has a value after it.
        discount=1.0 - jnp.stack(terminations).astype(jnp.float32),
        log_prob=jnp.stack(log_probs),
        value=jnp.stack(values),
        state0=state0,
    )
    return Rollout.cut(trajectory, (state0,), seen.memory), seen, successes


def main(updates: int = 200, corridor_length: int = 4) -> list[float]:
    """Trains, and returns the fraction of successes in each twenty updates."""
    envs = gymnasium.make_vec(
        TASK, num_envs=SETTINGS.num_envs, vectorization_mode="sync", corridor_length=corridor_length
    )
    memory_key, head_key, act_key, learn_key = jax.random.split(jax.random.key(0), 4)
    memory = clew.make_memory("gru", input_size=16, key=memory_key, hidden_size=32)
    agent = Agent(memory, 4, key=head_key, network=NetworkConfig(head_size=32))
    learner = A2C(SETTINGS)
    learner_state = init_optimiser(learner.optimiser, agent)
    update = eqx.filter_jit(learner.learn)

    batch = SETTINGS.num_envs
    states = jax.vmap(lambda _: agent.init_state())(jnp.arange(batch))
    first, _ = envs.reset(seed=0)
    seen = Seen(first, np.ones(batch, bool), np.zeros(batch, bool), states, act_key)
    shares, recent = [], []
    for i in range(1, updates + 1):
        steps, seen, successes = rollout(envs, agent, seen)
        recent += successes
        agent, learner_state, _ = update(agent, learner_state, steps, learn_key)
        # The memory's cache (keys and values) was computed with the old parameters.
        seen = seen._replace(memory=refresh_all(agent, seen.memory, batch))
        if i % 20 == 0:
            shares.append(float(np.mean(recent)) if recent else 0.0)
            print(f"update {i}: {len(recent)} episodes, success {shares[-1]:.2f}")
            recent = []
    envs.close()
    return shares


if __name__ == "__main__":
    main()
