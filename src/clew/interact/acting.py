"""One step of acting: in compiled tasks `act_and_step`, in hosted ones `act` and `step`.

Rollouts, evaluations, inspections and films are made of these steps; each names what it keeps of
them.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from clew.agents.distributions import Categorical, Distribution
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

    distribution: Distribution
    logits: Float[Array, "batch n"]
    """Parameters of the distribution that the action was chosen from."""
    action: Array
    """As the distribution keeps it."""
    value: Float[Array, " batch"]
    action_values: Float[Array, "batch n"] | None
    """Of heads that learn these, else None."""

    def named(self) -> dict[str, Array | None]:
        """All that may be kept of it. A compiled program computes only what it returns.

        "probabilities" are those of every action, None where actions are no choices;
        "action_values" are None where a policy was learned.
        """
        discrete = isinstance(self.distribution, Categorical)
        return {
            "action": self.action,
            "log_prob": self.distribution.log_prob(self.logits, self.action),
            "value": self.value,
            "probabilities": jax.nn.softmax(self.logits) if discrete else None,
            "action_values": self.action_values,
        }


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
    memory, choice = _choose(agent, actor.memory, seen.observation, seen.start, pick, behave)
    taken = cast(Array, agent.distribution.decode(choice.action))
    env, then = jax.vmap(stream.step)(actor.env, taken, keys)
    return ActorState(env, then, memory), choice


def act(
    static: Agent,
    greedy: bool,
    keep: Sequence[str],
    params: PyTree[Array],
    memory: State,
    observation: Observation,
    start: Bool[Array, " batch"],
    key: PRNGKeyArray,
    time: Int[Array, ""],
    behave: Callable[[Outputs], Float[Array, "batch n"]] = operator.attrgetter("logits"),
) -> tuple[State, dict[str, Any]]:
    """What an agent makes of observations of a hosted task; for use within a compiled function.

    Args:
        static: the agent without its arrays, which are `params`.
        greedy: take the most probable action, instead of sampling from the policy.
        keep: names; what `Choice.named` has of them is returned.
        key: of the samples, the same at every step.
        time: which step this is.
        behave: see `act_and_step`.

    Returns:
        The memory after the observations, and what is kept of the choices.
    """
    agent = eqx.combine(params, static)
    now = jax.random.fold_in(key, agent.distribution.noise_time(time))
    pick = partial(agent.distribution.choose, key=now, greedy=greedy)
    memory, choice = _choose(agent, memory, observation, start, pick, behave)
    return memory, {name: x for name, x in choice.named().items() if name in keep}


def compile_act(
    static: Agent, *, greedy: bool, keep: Sequence[str] = ("action",)
) -> Callable[..., tuple[State, dict[str, Any]]]:
    """`act` compiled for one agent; memories that it is given are used up."""
    return jax.jit(partial(act, static, greedy, keep), donate_argnums=1)


def step(
    streams: Sequence[GymnasiumStream],
    distribution: Distribution,
    actions: Sequence[np.ndarray],
    timeout: float | None = None,
) -> list[GymnasiumStep]:
    """Sends actions to hosted environments and waits for all of them.

    Those of all streams are stepped at the same time where they have processes. Actions are as the
    distribution keeps them; after `timeout` seconds an environment counts as hung.

    Raises:
        EnvironmentFault: an environment failed.
    """
    for stream, action in zip(streams, actions, strict=True):
        stream.step_async(distribution.decode(action))
    return [stream.step_wait(timeout) for stream in streams]


def _choose(
    agent: Agent,
    memory: State,
    observation: Observation,
    start: Bool[Array, " batch"],
    pick: Callable[[Float[Array, "batch n"]], Array],
    behave: Callable[[Outputs], Float[Array, "batch n"]],
) -> tuple[State, Choice]:
    memory, outputs = step_all(agent, memory, observation, start)
    logits = behave(outputs)
    chosen = logits, pick(logits), outputs.value, outputs.action_values
    return memory, Choice(agent.distribution, *chosen)
