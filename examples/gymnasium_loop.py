"""A2C on a Gymnasium vector environment, in a training loop of one's own.

Everything about memory is clew's, the loop is not: environments step in Python and may be any that
Gymnasium has. What is easily got wrong is marked with a comment: when the memory starts again, and
which transitions are none.

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
    """What the next step of the loop begins with."""

    observation: np.ndarray
    start: np.ndarray
    last: np.ndarray
    memory: Any
    key: jax.Array


@eqx.filter_jit
def act(agent: Agent, seen: Seen) -> tuple[Any, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Reads one observation of every environment and draws an action for each."""
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
        What the learner needs, what the next rollout begins with, and for every episode that
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
        # action and opens the next episode: that observation starts, and that step is none.
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
    """Trains, and returns the share of successes during each twenty updates."""
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
        # What the memory keeps ready (keys and values) was made with the old parameters.
        seen = seen._replace(memory=refresh_all(agent, seen.memory, batch))
        if i % 20 == 0:
            shares.append(float(np.mean(recent)) if recent else 0.0)
            print(f"update {i}: {len(recent)} episodes, success {shares[-1]:.2f}")
            recent = []
    envs.close()
    return shares


if __name__ == "__main__":
    main()
