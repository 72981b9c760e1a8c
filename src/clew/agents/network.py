"""The network of an agent: encoder, memory, a head for the policy and one for the value."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import require_at_least
from clew.memory import make_memory
from clew.memory.base import AbstractMemory, State
from clew.memory.blocks import Linear

if TYPE_CHECKING:
    from clew.agents.policy import Policy


class Identity(eqx.Module):
    """An encoder that hands the observation on unchanged, as for Pramanik's T-Maze agents."""

    def __call__(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead n"]:
        return x


class Head(eqx.Module):
    """What reads a memory's output, y = tanh(x W_1 + b_1) W_2 + b_2.

    Both products start orthogonal with gain sqrt(2), the last one too, and with zero biases, as
    in the authors' published code; Pramanik (2023), Table A.1, gives the width 128.
    """

    hidden: Linear
    output: Linear

    def __init__(self, input_size: int, hidden_size: int, output_size: int, *, key: PRNGKeyArray):
        hidden_key, output_key = jax.random.split(key)
        self.hidden = Linear(input_size, hidden_size, key=hidden_key)
        self.output = Linear(hidden_size, output_size, key=output_key)

    def __call__(self, x: Float[Array, "*lead in"]) -> Float[Array, "*lead out"]:
        return self.output(jnp.tanh(self.hidden(x)))


class Agent(eqx.Module):
    """A policy and a value over a memory; like a memory it has no batch axis.

        z_t = encoder(x_t)      (s_t, y_t) = memory.step(s_{t-1}, z_t, start_t)
        logits_t = actor(y_t)   V_t = critic(y_t)

    Args:
        memory: any memory; its `input_size` is the encoder's output.
        num_actions: number of discrete actions, at least 1.
        key: random key for the heads.
        head_size: width of the hidden layer of each head.
        encoder: maps an observation to the memory's input, on any leading axes.

    Raises:
        UserError: for a size below 1.

    Source: Pramanik (2023), section 5.1 and Table A.1: separate actor and critic networks over
    one shared memory.
    """

    encoder: eqx.Module
    memory: AbstractMemory
    actor: Head
    critic: Head
    num_actions: int = eqx.field(static=True)

    def __init__(
        self,
        memory: AbstractMemory,
        num_actions: int,
        *,
        key: PRNGKeyArray,
        head_size: int = 128,
        encoder: eqx.Module | None = None,
    ):
        require_at_least("num_actions", num_actions, 1)
        require_at_least("head_size", head_size, 1)
        actor_key, critic_key = jax.random.split(key)
        self.encoder = Identity() if encoder is None else encoder
        self.memory = memory
        self.actor = Head(memory.output_size, head_size, num_actions, key=actor_key)
        self.critic = Head(memory.output_size, head_size, 1, key=critic_key)
        self.num_actions = num_actions

    def init_state(self) -> State:
        """The memory's state before any observation."""
        return self.memory.init_state()

    def refresh(self, state: State) -> State:
        """The memory's state, rebuilt for the present parameters."""
        return self.memory.refresh(state)

    def step(
        self, state: State, observation: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[State, Float[Array, " actions"], Float[Array, ""]]:
        """Reads one observation: new state, logits of the policy, value."""
        state, y = self.memory.step(state, self._encode(observation), start)
        return state, self.actor(y), self.critic(y)[0]

    def unroll(
        self, state: State, observations: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[State, Float[Array, "time actions"], Float[Array, " time"]]:
        """Reads a chunk of observations: final state, logits and values at every time."""
        state, ys = self.memory.unroll(state, self._encode(observations), starts)
        return state, self.actor(ys), self.critic(ys)[:, 0]

    def policy(self, *, greedy: bool = True, seed: int = 0) -> "Policy":
        """A policy that keeps its own memory, for use outside of training."""
        from clew.agents.policy import Policy

        return Policy(self, greedy=greedy, seed=seed)

    def _encode(self, x: Float[Array, "*lead n"]) -> Float[Array, "*lead in"]:
        return self.encoder(x)  # pyright: ignore[reportCallIssue]


def make_agent(
    memory: str,
    memory_options: dict[str, Any],
    *,
    observation_size: int,
    num_actions: int,
    head_size: int,
    key: PRNGKeyArray,
) -> Agent:
    """Builds an agent from names and options, as a run's settings hold them.

    Raises:
        UserError: for an unknown memory or option, or an impossible size.
    """
    memory_key, heads_key = jax.random.split(key)
    module = make_memory(memory, input_size=observation_size, key=memory_key, **memory_options)
    return Agent(module, num_actions, key=heads_key, head_size=head_size)
