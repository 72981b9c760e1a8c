"""memorax's PQN and R2D2 as published, on clew's own task: `build(NAME, ...)`.

The imports in its packages' `__init__` files are left out, see `import_parts`.
"""

import sys
import types
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from clew.envs import AutoReset
from import_parts import import_memorax


class Choices:
    """The space of actions, as in gymnax."""

    shape, dtype = (), jnp.int32

    def __init__(self, count: int):
        self.count = count

    def sample(self, key: jax.Array) -> jax.Array:
        """An action, drawn uniformly."""
        return jax.random.randint(key, (), 0, self.count)


class Stream:
    """A stream of clew's episodes with gymnax's interface; it draws its next episodes itself."""

    def __init__(self, stream: AutoReset, actions: int):
        self.stream, self.actions = stream, actions

    def action_space(self, params: Any) -> Choices:
        """What may be done."""
        return Choices(self.actions)

    def reset(self, key: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        """The first observation, and the state."""
        state, seen = self.stream.reset(key)
        return jnp.asarray(seen.observation), state

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> tuple[Any, ...]:
        """Takes a step; the observation after an end is the first of the next episode."""
        state, seen = self.stream.step(state, action, key)
        return jnp.asarray(seen.observation), state, seen.reward, seen.ended, {}


class Network(nn.Module):
    """A dense layer, memorax's GRU and a value for every action."""

    rnn: Any
    width: int
    actions: int

    @nn.compact
    def __call__(
        self,
        observation: Any,
        mask: Any,
        action: Any,
        reward: Any,
        done: Any,
        initial_carry: Any = None,
        **kwargs: Any,
    ) -> Any:
        x = nn.relu(nn.Dense(self.width)(observation))
        carry, x = self.rnn(x, mask=mask, initial_carry=initial_carry)
        return carry, (nn.Dense(self.actions)(x), {})

    @nn.nowrap
    def initialize_carry(self, shape: tuple[int, ...]) -> Any:
        """Of a batch."""
        return self.rnn.initialize_carry(jax.random.key(0), (shape[0], self.width))


def build(name: str, stream: AutoReset, actions: int, width: int, config: Any) -> Any:
    """memorax's PQN or R2D2 with those settings of clew's learner that it has."""
    gru = import_memorax().RNN(cell=nn.GRUCell(width))
    env, network = Stream(stream, actions), Network(gru, width, actions)
    clipped = optax.clip_by_global_norm(config.max_grad_norm)
    epsilon = optax.constant_schedule(0.1)
    if name == "pqn":
        made = _algorithm("pqn")
        settings = made.PQNConfig(
            name="pqn",
            num_envs=config.num_envs,
            num_eval_envs=1,
            num_steps=config.rollout_length,
            gamma=config.gamma,
            td_lambda=config.lam,
            num_minibatches=config.minibatches,
            update_epochs=config.epochs,
        )
        optimiser = optax.chain(clipped, optax.radam(config.learning_rate))
        return made.PQN(settings, env, None, network, optimiser, epsilon)
    made = _algorithm("r2d2")
    settings = made.R2D2Config(
        name="r2d2",
        learning_rate=config.learning_rate,
        num_envs=config.num_envs,
        num_eval_envs=1,
        buffer_size=config.replay_steps,
        gamma=config.gamma,
        tau=1.0,
        target_network_frequency=config.target_period,
        batch_size=config.batch_size,
        start_e=0.1,
        end_e=0.1,
        exploration_fraction=1.0,
        learning_starts=config.learning_starts,
        train_frequency=config.num_envs * config.rollout_length // config.gradient_steps,
        burn_in_length=config.burn_in,
        sequence_length=config.sequence_length,
        n_step=config.n_step,
        priority_exponent=config.priority_exponent,
        importance_sampling_exponent=config.importance_exponent,
    )
    replay = import_module("memorax.buffers").make_prioritised_episode_buffer(
        max_length=config.replay_steps,
        min_length=config.learning_starts,
        sample_batch_size=config.batch_size,
        sample_sequence_length=config.burn_in + config.sequence_length,
        add_sequences=True,
        add_batch_size=config.num_envs,
        priority_exponent=config.priority_exponent,
    )
    optimiser = optax.chain(clipped, optax.adam(config.learning_rate, eps=config.adam_eps))
    beta = optax.constant_schedule(config.importance_exponent)
    return made.R2D2(settings, env, None, network, optimiser, replay, epsilon, beta)


def begin(algorithm: Any, steps: int) -> Callable[[], Any]:
    """Starts a training; returns a call that makes this many more steps in all environments."""
    key, state = algorithm.init(jax.random.key(0))
    key, state = algorithm.warmup(key, state, getattr(algorithm.cfg, "learning_starts", 0))
    held = [key, state]
    advance = partial(algorithm.train, num_steps=steps)

    def call() -> Any:
        held[0], held[1], _ = advance(held[0], held[1])
        return held[1].params

    return call


def size_of(algorithm: Any) -> int:
    """The number of its parameters."""
    _, state = algorithm.init(jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(state.params))


def _algorithm(name: str) -> Any:
    """memorax's module of an algorithm; gymnax, which it uses in annotations, is not installed."""
    gymnax: Any = types.ModuleType("gymnax")
    gymnax.EnvState = Any
    sys.modules["gymnax"] = gymnax
    networks: Any = sys.modules["memorax.networks"]
    networks.SequenceModelWrapper = import_memorax().SequenceModelWrapper
    return import_module(f"memorax.algorithms.{name}")
