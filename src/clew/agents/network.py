"""The network of an agent: encoder, memory and heads."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import equinox as eqx
import jax
from gymnasium.spaces import Dict, Space
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.agents.distributions import (
    CONTINUOUS,
    DEVIATIONS,
    Categorical,
    Distribution,
    make_distribution,
)
from clew.agents.encoders import (
    AbstractEncoder,
    Dense,
    EncoderConfig,
    SideBySideEncoders,
    WithoutEntries,
    make_encoder,
)
from clew.agents.heads import ActorCritic, Heads, MakeHeads, Outputs
from clew.envs.base import Observation
from clew.envs.spaces import MASK, ActionMask, entries_named, space_without, without_mask
from clew.errors import (
    LARGEST_SIZE,
    Settings,
    UserError,
    require_at_least,
    require_choice,
    require_finite,
    unknown_name,
)
from clew.memory import make_memory, options_among
from clew.memory.base import AbstractMemory, State
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, Linear
from clew.memory.parts.side_by_side import SideBySide
from clew.names import is_reference, resolve

PROJECTIONS = ("none", "linear", "affine")
MEMORIES_OF_CRITIC = ("shared", "separate", "none")


@dataclass(frozen=True)
class NetworkConfig(EncoderConfig, Settings):
    """The network around the memory. The defaults are those of Pramanik's (2023) T-Maze agents."""

    projection: str = "none"
    """A product after the memory, of the same width: none, linear, or affine with a bias."""
    skip: bool = False
    """Add the memory's input to its output: relu(y) + z (Makkink, 2021, Algorithm 2, with the
    relu of the published code). Needs equal widths."""
    head_size: int = 128
    """Width of the hidden layer of the actor and of the critic; 0 for a single product each
    (Pramanik, 2023, Table A.1: 128; Makkink, 2021: 0)."""
    critic_only: tuple[str, ...] = ()
    """Names of entries of a Dict observation that only the critic reads, beside the memory's
    output: V(h, s) (Baisero and Amato, 2022). The encoder, the memory and the actor never see
    them, and they are not needed after training. With A2C and PPO."""
    memory_of_critic: str = "shared"
    """The critic's memory: shared, the actor's; separate, an encoder and a memory of its own, of
    the same kind (Ni et al., 2022, for learners with a replay); or none, an encoder of its own
    alone. With A2C, PPO and SAC."""
    continuous: str = "gaussian"
    """Distribution of the actions of a Box: gaussian, clipped to its limits, or tanh, squashed into
    them. SAC always uses tanh."""
    log_std: str = "free"
    """Source of the log standard deviations of such actions: free, learned parameters that do not
    depend on the observation, or head, outputs of the actor. SAC always uses head."""
    initial_log_std: float = 0.0
    """The log standard deviations before training."""
    noise_steps: int = 1
    """Number of steps for which sampled actions keep their noise. Above 1 a sampled policy keeps
    pushing in the same direction, which finds rewards that need momentum."""

    def validate(self) -> None:
        self.validate_encoder()
        require_choice("projection", self.projection, PROJECTIONS)
        require_choice("memory_of_critic", self.memory_of_critic, MEMORIES_OF_CRITIC)
        if self.projection != "none" and self.memory_of_critic != "shared":
            raise UserError(
                f"projection needs memory_of_critic=shared: it would mix the memories of actor and "
                f"critic, got {self.projection} and {self.memory_of_critic}"
            )
        require_choice("continuous", self.continuous, CONTINUOUS)
        require_choice("log_std", self.log_std, DEVIATIONS)
        require_finite("initial_log_std", self.initial_log_std)
        require_at_least("noise_steps", self.noise_steps, 1)
        require_at_least("head_size", self.head_size, 0, LARGEST_SIZE)


class ReadMask(eqx.Module):
    """Reads the action mask of an observation."""

    def __call__(self, observation: dict[str, Array]) -> Bool[Array, "*lead n"]:
        """Which actions are allowed."""
        return observation[MASK]


class ReadCriticOnly(eqx.Module):
    """Encodes the entries of an observation that only the critic reads."""

    encoder: AbstractEncoder
    """Of a dict of these entries."""
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, observation: Observation) -> Float[Array, "*lead n"] | None:
        """What the critic reads; None if an entry is missing."""
        if not isinstance(observation, dict) or not observation.keys() >= set(self.names):
            return None
        return self.encoder({name: observation[name] for name in self.names})


class Agent(eqx.Module):
    """A policy over a memory; like a memory it has no batch axis.

        z_t = encoder(x_t)      (s_t, y_t) = memory(s_{t-1}, z_t, start_t)
        h_t = projection(y_t),  with a skip connection relu(projection(y_t)) + z_t
        outputs_t = heads(h_t)

    The learner chooses the heads; those of an actor-critic output logits and a value. Their critic
    may read a part of x_t that nothing else reads (`critic_only`).

    Args:
        memory: any memory; its `input_size` is the encoder's output.
        actions: number of discrete actions, at least 1, or a distribution of any actions.
        key: random key for what is not given.
        network: settings of the network around the memory; those of its encoder count only in
            `make_agent`, which knows the observation.
        encoder: maps an observation to the memory's input, on any leading axes.
        masked: whether observations are dicts with an action mask, "action_mask".
        make_heads: what makes the heads.
        critic_only: reads what only the critic sees; None if it sees what the actor sees.

    Raises:
        UserError: for an impossible size, a skip connection between different widths, or
            `critic_only` or `memory_of_critic` with other heads than those of an actor-critic.

    Source: Makkink (2021), Algorithm 2: the skip connection.
    """

    encoder: Callable[[Array], Array]
    memory: AbstractMemory
    projection: Linear | None
    heads: Heads
    mask: ReadMask | None
    """Reads an observation's allowed actions; None where all are always allowed."""
    critic_only: Callable[[Observation], Array | None] | None
    skip: bool = eqx.field(static=True)

    def __init__(
        self,
        memory: AbstractMemory,
        actions: int | Distribution,
        *,
        key: PRNGKeyArray,
        network: NetworkConfig | None = None,
        encoder: Callable[[Array], Array] | None = None,
        masked: bool = False,
        make_heads: MakeHeads = ActorCritic,
        critic_only: ReadCriticOnly | None = None,
    ):
        network = NetworkConfig() if network is None else network
        network.validate()
        if not isinstance(actions, Distribution):
            require_at_least("actions", actions, 1)
            actions = Categorical(actions)
        size, init = memory.output_size, cast(Init, network.init)
        if network.skip and memory.input_size != size:
            raise UserError(
                f"skip needs a memory whose output is as wide as its input, got "
                f"{memory.input_size} in and {size} out; choose hidden_size to fit"
            )
        self.encoder = Dense((memory.input_size,), key=key) if encoder is None else encoder
        self.memory = memory
        self.projection = None
        if network.projection != "none":
            bias = network.projection == "affine"
            self.projection = Linear(size, size, key=initial.beside(key), init=init, bias=bias)
        given: Any = {"hidden_size": network.head_size, "init": init, "key": key}
        given |= critic_inputs(network, memory, make_heads, critic_only)
        self.heads = make_heads(size, actions, **given)
        self.mask = ReadMask() if masked else None
        self.critic_only = critic_only
        self.skip = network.skip

    @property
    def distribution(self) -> Distribution:
        """Of the actions."""
        return self.heads.distribution

    def init_state(self) -> State:
        """The memory's state before any observation."""
        return self.memory.init_state()

    def refresh(self, state: State) -> State:
        """The memory's state, rebuilt for the current parameters."""
        return self.memory.refresh(state)

    def step(
        self, state: State, observation: Observation, start: Bool[Array, ""]
    ) -> tuple[State, Outputs]:
        """Reads one observation: new state, outputs of the heads."""
        z = self.encoder(observation)
        state, y = self.memory.step(state, z, start)
        read = self.read_mask(observation), self.read_critic_only(observation)
        return state, self._outputs(y, z, *read)

    def unroll(
        self, state: State, observations: Observation, starts: Bool[Array, " time"]
    ) -> tuple[State, Outputs]:
        """Reads a chunk of observations: final state, outputs at every time."""
        read = self.read_mask(observations), self.read_critic_only(observations)
        return self.unroll_encoded(state, self.encoder(observations), starts, *read)[:2]

    def without_critic(self) -> "Agent":
        """The agent that acts as this one does, without the critic's own encoder and memory.

        It has no value. Where actor and critic share the memory, it is this agent.
        """
        encoder, memory = self.encoder, self.memory
        if not isinstance(encoder, SideBySideEncoders) or not isinstance(memory, SideBySide):
            return self
        parts = encoder.encoders[0], memory.memories[0], self.heads.without_critic()
        return eqx.tree_at(lambda agent: (agent.encoder, agent.memory, agent.heads), self, parts)

    def read_mask(self, observation: Observation) -> Bool[Array, "*lead n"] | None:
        """Which actions are allowed, on any leading axes; None where all are always allowed."""
        return None if self.mask is None else self.mask(cast("dict[str, Array]", observation))

    def read_critic_only(self, observation: Observation) -> Float[Array, "*lead n"] | None:
        """What only the critic reads, encoded, on any leading axes; None if there is nothing, or if
        some of it is missing, as it may be where no value is needed."""
        return None if self.critic_only is None else self.critic_only(observation)

    def unroll_encoded(
        self,
        state: State,
        zs: Float[Array, "time in"],
        starts: Bool[Array, " time"],
        mask: Bool[Array, "time actions"] | None = None,
        critic_only: Float[Array, "time n"] | None = None,
    ) -> tuple[State, Outputs, dict[str, Array]]:
        """`unroll` on encoded observations, their action masks and what only the critic reads, and
        the memory's metrics.

        Callers with many environments encode all their observations in one call, which for pictures
        is faster than one call per environment.
        """
        state, ys, metrics = self.memory.unroll_with_metrics(state, zs, starts)
        return state, self._outputs(ys, zs, mask, critic_only), metrics

    def _outputs(
        self,
        y: Float[Array, "*lead out"],
        z: Float[Array, "*lead out"],
        mask: Bool[Array, "*lead actions"] | None,
        critic_only: Float[Array, "*lead n"] | None,
    ) -> Outputs:
        """The heads' outputs, from the memory's output and input."""
        y = y if self.projection is None else self.projection(y)
        h = jax.nn.relu(y) + z if self.skip else y
        if self.critic_only is None:
            return self.heads(h, mask)
        return cast(ActorCritic, self.heads)(h, mask, critic_only)


def critic_inputs(
    network: NetworkConfig,
    memory: AbstractMemory,
    make_heads: MakeHeads,
    critic_only: ReadCriticOnly | None,
) -> dict[str, int]:
    """What `ActorCritic` has to know of a critic that reads something else than the actor.

    Raises:
        UserError: for heads that have no such critic, or a critic's memory that is missing.
    """
    found = {}
    if critic_only is not None:
        if make_heads is not ActorCritic:
            raise UserError(
                f"critic_only needs a learner with a policy and a value of the state, a2c or ppo "
                f"(or one of your own with the heads ActorCritic), got "
                f"critic_only={critic_only.names}"
            )
        found["critic_only"] = critic_only.encoder.output_size
    if network.memory_of_critic != "shared":
        if "of_actor" not in inspect.signature(make_heads).parameters:
            raise UserError(
                f"memory_of_critic needs a learner with a policy and a critic, a2c, ppo or sac (or "
                f"one of your own whose heads take of_actor, as ActorCritic does), got "
                f"memory_of_critic={network.memory_of_critic}"
            )
        if not isinstance(memory, SideBySide):
            raise UserError(
                f"memory_of_critic={network.memory_of_critic} needs two memories, "
                f"clew.memory.parts.side_by_side.SideBySide(actors, critics), got "
                f"{type(memory).__name__}"
            )
        found["of_actor"] = memory.memories[0].output_size
    return found


def make_encoders(
    space: Space, network: NetworkConfig, *, key: PRNGKeyArray
) -> tuple[AbstractEncoder, ReadCriticOnly | None]:
    """The encoder of a space's observations, and that of the entries that only the critic reads.

    The latter are encoded like other entries; if the encoder is one of your own, like `auto`.

    Raises:
        UserError: for a space that no encoder supports, or `critic_only` that does not fit it.
    """
    encoder_key = jax.random.fold_in(key, 2)
    if not network.critic_only:
        return make_encoder(space, network, key=encoder_key), None
    shown = without_mask(space)[0]
    if not isinstance(shown, Dict):
        raise UserError(
            f"critic_only names entries of a Dict observation (wrappers.whole makes one), got "
            f"{network.critic_only} of {shown}"
        )
    for name in network.critic_only:
        if not entries_named(shown, (name,)):
            raise unknown_name("entry of the observation in critic_only", name, shown)
    entries = entries_named(shown, network.critic_only)
    if len(entries) == len(shown):
        raise UserError(
            f"critic_only must leave the actor an entry, got {network.critic_only}, which are all"
        )
    encoder = make_encoder(space_without(space, *entries), network, key=encoder_key)
    if is_reference(network.encoder):
        network = replace(network, encoder="auto", encoder_options={})
    read_space = Dict({name: shown[name] for name in entries})
    read = make_encoder(read_space, network, key=jax.random.fold_in(key, 3))
    return WithoutEntries(encoder, entries), ReadCriticOnly(read, entries)


def refuse_own_arguments(memory_options: dict[str, Any]) -> None:
    """Raises `UserError` for a memory option that the agent sets itself."""
    for own in {"input_size", "key"} & memory_options.keys():
        raise UserError(
            f"memory_options must leave {own} to the agent, got {memory_options[own]!r}"
        )


def make_agent(
    memory: str,
    memory_options: dict[str, Any],
    *,
    observation_space: Space,
    action_space: Space,
    network: NetworkConfig,
    key: PRNGKeyArray,
    make_heads: MakeHeads = ActorCritic,
) -> Agent:
    """Builds an agent from names and options, as in a run's settings.

    Args:
        memory: one of `clew.MEMORIES`, or "package.module:Class" for one of your own.
        memory_options: of the memory.
        observation_space: of the agent's observations.
        action_space: of its actions.
        network: settings of the network around the memory.
        key: random key for the weights.
        make_heads: what makes the heads, as the learner chooses.

    Raises:
        UserError: for an unknown memory or option, an impossible size, or a space that no encoder
            or distribution supports, or for `critic_only` or `memory_of_critic` that does not fit.
    """
    network.validate()
    memory_key, heads_key = jax.random.split(key)
    encoder, critic_only = make_encoders(observation_space, network, key=key)
    size = encoder.output_size
    kind = resolve(memory) if is_reference(memory) else memory
    refuse_own_arguments(memory_options)
    module = make_memory(kind, input_size=size, key=memory_key, **memory_options)
    if network.memory_of_critic != "shared":
        of_critic, _ = make_encoders(observation_space, network, key=jax.random.fold_in(key, 4))
        encoder = SideBySideEncoders(encoder, of_critic)
        if network.memory_of_critic == "none":
            kind, memory_options = "none", options_among("none", memory_options)
        own_key = jax.random.fold_in(key, 5)
        critics = make_memory(kind, input_size=size, key=own_key, **memory_options)
        module = SideBySide(module, critics)
    distribution = make_distribution(
        action_space,
        continuous=network.continuous,
        log_std=network.log_std,
        initial_log_std=network.initial_log_std,
        noise_steps=network.noise_steps,
    )
    mask = without_mask(observation_space)[1]
    if mask is not None and mask != ActionMask(action_space):
        raise UserError(f"the action mask {mask} does not fit the actions {action_space}")
    return Agent(
        module,
        distribution,
        key=heads_key,
        network=network,
        encoder=encoder,
        masked=mask is not None,
        make_heads=make_heads,
        critic_only=critic_only,
    )
