"""One step of acting: in compiled tasks `act_and_step`, in hosted ones `act` and `step`.

Rollouts, evaluations, inspections and films are made of these steps; each keeps of them what it
needs.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from clew.agents.distributions import Distribution
from clew.agents.heads import Outputs
from clew.agents.network import Agent
from clew.agents.trajectory import step_all
from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream
from clew.envs.base import Observation
from clew.envs.stream import AutoReset, AutoResetState, TimeStep
from clew.memory.base import State


class ActorState(NamedTuple):
    """Where acting in a compiled task stands: every leaf has the environments as first axis."""

    env: AutoResetState
    timestep: TimeStep
    memory: State


class Choice(NamedTuple):
    """What an agent made of an observation, in B environments."""

    logits: Float[Array, "batch n"]
    """Parameters of the distribution that the action was chosen from."""
    action: Array
    """As the distribution keeps it."""
    value: Float[Array, " batch"]


def act_and_step(
    agent: Agent,
    stream: AutoReset,
    actor: ActorState,
    pick: Callable[[Float[Array, "batch n"]], Array],
    keys: Key[Array, " batch"],
    behave: Callable[[Outputs], Float[Array, "batch n"]] = operator.attrgetter("logits"),
) -> tuple[ActorState, Choice]:
    """One step of every environment of a compiled task.

    Args:
        agent: the network.
        stream: the task.
        actor: where acting stands; its `timestep` is what the agent sees.
        pick: the actions, from the parameters of their distribution.
        keys: of the environments.
        behave: these parameters, from the network's outputs; by default those of its own policy.

    Returns:
        Where acting stands now, whose `timestep` says what the actions did, and the choices.
    """
    seen = actor.timestep
    memory, outputs = jax.vmap(agent.step)(actor.memory, seen.observation, seen.start)
    logits = behave(outputs)
    action = pick(logits)
    taken = cast(Array, agent.distribution.decode(action))
    env, then = jax.vmap(stream.step)(actor.env, taken, keys)
    return ActorState(env, then, memory), Choice(logits, action, outputs.value)


def act(
    static: Agent,
    greedy: bool,
    keep: Callable[[Distribution, Choice], Any],
    params: PyTree[Array],
    memory: State,
    observation: Observation,
    start: Bool[Array, " batch"],
    key: PRNGKeyArray,
    time: Int[Array, ""],
    behave: Callable[[Outputs], Float[Array, "batch n"]] = operator.attrgetter("logits"),
) -> tuple[State, Any]:
    """What an agent makes of observations of a hosted task; for use within a compiled function.

    Args:
        static: the agent without its arrays.
        greedy: take the most probable action, instead of sampling from the policy.
        keep: what is returned of the choices.
        params: the agent's arrays.
        memory: before the observations.
        observation: of every environment.
        start: which of them open an episode.
        key: of the samples, the same at every step.
        time: which step this is.
        behave: see `act_and_step`.

    Returns:
        The memory after the observations, and what is kept.
    """
    agent = eqx.combine(params, static)
    memory, outputs = step_all(agent, memory, observation, start)
    logits = behave(outputs)
    now = jax.random.fold_in(key, agent.distribution.noise_time(time))
    action = agent.distribution.choose(logits, now, greedy=greedy)
    return memory, keep(agent.distribution, Choice(logits, action, outputs.value))


def step_keys(
    key: PRNGKeyArray, steps: int, distribution: Distribution
) -> tuple[Key[Array, " steps"], Key[Array, " steps"]]:
    """Keys of the sampled actions and of the environments, for steps in a row.

    The first of them is acted with noise of its own.
    """
    keys = jax.vmap(jax.random.split)(jax.random.split(key, steps))
    return keys[distribution.noise_time(jnp.arange(steps)), 0], keys[:, 1]


def compile_act(
    static: Agent, *, greedy: bool, keep: Callable[[Distribution, Choice], Any]
) -> Callable[..., tuple[State, Any]]:
    """`act` compiled for one agent; memories that it is given are used up."""
    return jax.jit(partial(act, static, greedy, keep), donate_argnums=1)


def only_action(distribution: Distribution, choice: Choice) -> Array:
    """What `act` keeps where nothing but the actions is asked for."""
    return choice.action


def step(
    streams: Sequence[GymnasiumStream],
    distribution: Distribution,
    actions: Sequence[np.ndarray],
    timeout: float | None = None,
) -> list[GymnasiumStep]:
    """Sends actions to hosted environments and waits for all of them.

    Args:
        streams: stepped at the same time where they have processes.
        distribution: of the actions.
        actions: for every stream, as the distribution keeps them.
        timeout: seconds, after which an environment counts as hung.

    Raises:
        EnvironmentFault: an environment failed.
    """
    for stream, action in zip(streams, actions, strict=True):
        stream.step_async(distribution.decode(action))
    return [stream.step_wait(timeout) for stream in streams]
