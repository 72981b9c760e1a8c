"""Recurrent PPO in one file: a loop of one's own in JAX, Equinox and Optax.

The memory and the task are clew's, the network, the rollout and the update are not. Environments
are stepped by `jax.lax.scan`, so an iteration is one compiled program. Comments mark what is
easily got wrong: where the memory starts again, and which steps belong to no episode. On POPGym's
easy RepeatPrevious, in which a guess earns -0.5, a GRU learns to earn more than 0.9.

    python examples/jax_loop.py
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import clew
from clew.agents.returns import lambda_returns

NUM_ENVS, LENGTH, EPOCHS, MINIBATCHES = 32, 64, 4, 4
GAMMA, LAM, CLIP, VALUE_COST, ENTROPY_COST = 0.99, 0.95, 0.2, 0.5, 0.01
OPTIMISER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))
STREAM = clew.AutoReset(clew.make_env("repeat_previous"))  # opens the next episode by itself
CARDS, ACTIONS = 4, 4  # what STREAM.observation_space and STREAM.action_space say


class Network(eqx.Module):
    """A one-hot card, a memory, a policy and a value; of one environment, as a memory is."""

    memory: clew.AbstractMemory
    actor: eqx.nn.Linear
    critic: eqx.nn.Linear

    def __init__(self, name: str, key: jax.Array, **options: Any):
        first, second, third = jax.random.split(key, 3)
        self.memory = clew.make_memory(name, input_size=CARDS, key=first, **options)
        self.actor = eqx.nn.Linear(self.memory.output_size, ACTIONS, key=second)
        self.critic = eqx.nn.Linear(self.memory.output_size, 1, key=third)

    def step(self, state: Any, card: jax.Array, start: jax.Array) -> tuple[Any, Any, Any]:
        """Acting: the next state, log-probabilities [ACTIONS] and the value."""
        state, y = self.memory.step(state, jax.nn.one_hot(card, CARDS), start)
        return state, jax.nn.log_softmax(self.actor(y)), self.critic(y)[0]

    def unroll(self, state: Any, cards: jax.Array, starts: jax.Array) -> tuple[Any, Any]:
        """Learning: the same log-probabilities and values of a chunk, time first."""
        _, ys = self.memory.unroll(state, jax.nn.one_hot(cards, CARDS), starts)
        return jax.nn.log_softmax(jax.vmap(self.actor)(ys)), jax.vmap(self.critic)(ys)[:, 0]


class Now(NamedTuple):
    """Where acting stands. The memory has not read `seen.observation` yet."""

    env: Any
    seen: Any
    memory: Any


class Steps(NamedTuple):
    """What one step, or a rollout [LENGTH, NUM_ENVS], leaves for the update."""

    card: jax.Array
    start: jax.Array
    valid: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    discount: jax.Array
    ended: jax.Array
    episode_return: jax.Array


def act(network: Network, now: Now, key: jax.Array) -> tuple[Now, Steps]:
    """One step of every environment."""
    seen, (draw, chance) = now.seen, jax.random.split(key)
    memory, log_probs, value = jax.vmap(network.step)(now.memory, seen.observation, seen.start)
    action = jax.random.categorical(draw, log_probs)
    log_prob = jnp.take_along_axis(log_probs, action[:, None], axis=1)[:, 0]
    env, then = jax.vmap(STREAM.step)(now.env, action, jax.random.split(chance, NUM_ENVS))
    steps = Steps(
        card=seen.observation,
        start=seen.start,
        valid=~seen.last,  # the step after a truncated episode's last observation teaches nothing
        action=action,
        log_prob=log_prob,
        value=value,
        reward=then.reward,  # of this action, although it comes with the next observation
        discount=then.discount,  # 0 after a termination, 1 after a truncation
        ended=then.ended,
        episode_return=then.metrics["return"],
    )
    return Now(env, then, memory), steps


def loss(
    network: Network, state: Any, steps: Steps, target: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """PPO's loss, and how far the ratio is from 1 at most, which is nowhere before an update."""
    # Stop the gradient first: what the state caches is then rebuilt with these parameters.
    state = jax.vmap(network.memory.refresh)(jax.lax.stop_gradient(state))
    unroll = jax.vmap(network.unroll, in_axes=(0, 1, 1), out_axes=1)
    log_probs, value = unroll(state, steps.card, steps.start)
    log_prob = jnp.take_along_axis(log_probs, steps.action[..., None], axis=-1)[..., 0]
    ratio = jnp.exp(log_prob - steps.log_prob)
    advantage = target - steps.value
    mean, deviation = (f(advantage, where=steps.valid) for f in (jnp.mean, jnp.std))
    advantage = (advantage - mean) / (deviation + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
    each = -gain + VALUE_COST * (value - target) ** 2 - ENTROPY_COST * entropy
    return jnp.mean(each, where=steps.valid), jnp.max(jnp.abs(ratio - 1))


@eqx.filter_jit
def iterate(network: Network, moments: Any, now: Now, key: jax.Array) -> tuple[Any, ...]:
    """A rollout, and `EPOCHS` times `MINIBATCHES` gradient steps on it."""
    act_key, learn_key = jax.random.split(key)
    state0 = now.memory  # before the first observation of the rollout
    now, steps = jax.lax.scan(
        lambda now, key: act(network, now, key), now, jax.random.split(act_key, LENGTH)
    )
    # The value of the observation after the last step; the next rollout reads that one itself.
    _, _, value = jax.vmap(network.step)(now.memory, now.seen.observation, now.seen.start)
    values = jnp.concatenate([steps.value, value[None]])
    target = lambda_returns(steps.reward, GAMMA * steps.discount, values, steps.valid, LAM)
    parameters, rest = eqx.partition(network, eqx.is_inexact_array)

    def gradient_step(carry: Any, chosen: jax.Array) -> tuple[Any, jax.Array]:
        """Of a minibatch of environments, each with its whole chunk and its first state."""
        parameters, moments = carry
        state = jax.tree.map(lambda leaf: leaf[chosen], state0)
        part, goal = jax.tree.map(lambda leaf: leaf[:, chosen], (steps, target))
        (_, off), gradient = jax.value_and_grad(
            lambda p: loss(eqx.combine(p, rest), state, part, goal), has_aux=True
        )(parameters)
        change, moments = OPTIMISER.update(gradient, moments, parameters)
        return (eqx.apply_updates(parameters, change), moments), off

    orders = jax.vmap(lambda k: jax.random.permutation(k, NUM_ENVS))(
        jax.random.split(learn_key, EPOCHS)
    )
    batches = orders.reshape(EPOCHS * MINIBATCHES, -1)
    (parameters, moments), off = jax.lax.scan(gradient_step, (parameters, moments), batches)
    network = eqx.combine(parameters, rest)
    # What the memory keeps ready (keys and values) was made with the old parameters.
    now = now._replace(memory=jax.vmap(network.memory.refresh)(now.memory))
    return network, moments, now, jnp.mean(steps.episode_return, where=steps.ended), off[0]


def main(memory: str = "gru", iterations: int = 200, **options: Any) -> list[float]:
    """Trains, and returns the mean return of the episodes that ended in each iteration.

    Args:
        memory: a name that `clew models` lists.
        iterations: rollouts, each with its update.
        options: of the memory; without any, `hidden_size=64`.
    """
    network_key, reset_key, loop_key = jax.random.split(jax.random.key(0), 3)
    network = Network(memory, network_key, **(options or {"hidden_size": 64}))
    moments = OPTIMISER.init(eqx.filter(network, eqx.is_inexact_array))
    env, seen = jax.vmap(STREAM.reset)(jax.random.split(reset_key, NUM_ENVS))
    state = jax.vmap(lambda _: network.memory.init_state())(jnp.arange(NUM_ENVS))
    now, returns = Now(env, seen, state), []
    for i, key in enumerate(jax.random.split(loop_key, iterations), 1):
        network, moments, now, earned, off = iterate(network, moments, now, key)
        assert off < 1e-3, f"acting and learning differ: a first ratio is off by {off}"
        returns.append(float(earned))
        if i % 20 == 0:
            print(f"{i * LENGTH * NUM_ENVS:,} steps: return {returns[-1]:.2f}")
    return returns


if __name__ == "__main__":
    main()
