"""One step of acting: in compiled tasks `act_and_step`, in hosted ones `act` and `step`.

Rollouts, evaluations, inspections and films consist of these steps; each names the values that it
keeps.
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
    """The state of acting in a compiled task: every leaf has the environments as first axis."""

    env: AutoResetState
    timestep: TimeStep
    memory: State


class Choice(NamedTuple):
    """An agent's outputs and actions for observations of B environments."""

    distribution: Distribution
    logits: Float[Array, "batch n"]
    """Parameters of the distribution that the action was chosen from."""
    action: Array
    """In the form that the distribution keeps."""
    value: Float[Array, " batch"] | None
    """None where entries that only the critic reads are missing."""
    action_values: Float[Array, "batch n"] | None
    """Only from heads that learn them, else None."""

    def named(self) -> dict[str, Array | None]:
        """Everything that may be kept, by name. A compiled program computes only what it returns.

        "probabilities" are those of every action, None unless it is one discrete choice;
        "action_values" are None if a policy was learned.
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
        actor: the state of acting; its `timestep` is what the agent sees.
        pick: gives the actions, from the parameters of their distribution.
        keys: of the environments.
        behave: gives these parameters, from the network's outputs; by default those of its policy.

    Returns:
        The new state of acting, whose `timestep` is the result of the actions, and the choices.
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
    """Chooses actions for observations of a hosted task; for use within a compiled function.

    Args:
        static: the agent without its arrays, which are `params`.
        greedy: take the most probable action, instead of sampling from the policy.
        keep: names of `Choice.named` to return.
        key: of the samples, the same at every step.
        time: the number of this step.
        behave: see `act_and_step`.

    Returns:
        The memory's state after the observations, and the kept values of the choices.
    """
    agent = eqx.combine(params, static)
    now = jax.random.fold_in(key, agent.distribution.noise_time(time))
    pick = partial(agent.distribution.choose, key=now, greedy=greedy)
    memory, choice = _choose(agent, memory, observation, start, pick, behave)
    return memory, {name: x for name, x in choice.named().items() if name in keep}


def compile_act(
    static: Agent, *, greedy: bool, keep: Sequence[str] = ("action",)
) -> Callable[..., tuple[State, dict[str, Any]]]:
    """`act` compiled for one agent; the memory states that it is given are donated."""
    return jax.jit(partial(act, static, greedy, keep), donate_argnums=1)


def step(
    streams: Sequence[GymnasiumStream],
    distribution: Distribution,
    actions: Sequence[np.ndarray],
    timeout: float | None = None,
) -> list[GymnasiumStep]:
    """Sends actions to hosted environments and waits for all of them.

    The environments of all streams step at the same time if they have processes. Actions are in the
    form that the distribution keeps; after `timeout` seconds an environment counts as hung.

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
