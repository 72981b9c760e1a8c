"""From the settings of a run to its task and its agent."""

import math
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax

from clew.agents.network import Agent, make_agent
from clew.envs.stream import AutoReset
from clew.errors import one_line
from clew.interact import tasks
from clew.interact.task import Task
from clew.run.machine import require_memory

if TYPE_CHECKING:
    from clew.run.config import TrainConfig


def make_task(config: "TrainConfig") -> Task:
    """The run's task with its wrappers.

    Raises:
        UserError: for an unknown task or option, or an impossible value.
    """
    return tasks.make_task(config.env, config.env_options, config.wrappers)


def jax_stream(config: "TrainConfig") -> AutoReset:
    """The stream of episodes of the run's task, which must be one written in JAX.

    Raises:
        UserError: as `make_task`, or for a Gymnasium environment.
    """
    return make_task(config).require_stream()


def build_agent(config: "TrainConfig", task: Task, key: jax.Array) -> Agent:
    """The run's agent before training.

    Raises:
        UserError: for an unknown memory or option, or an impossible value.
    """
    return make_agent(
        config.memory,
        config.memory_options,
        observation_space=task.observation_space,
        action_space=task.action_space,
        network=config.network,
        key=key,
    )


def abstract_agent(config: "TrainConfig", task: Task) -> Agent:
    """The run's agent with shapes in place of arrays; nothing is computed."""
    return eqx.filter_eval_shape(lambda key: build_agent(config, task, key), jax.random.key(0))


def check_memory(config: "TrainConfig", agent: Agent) -> None:
    """Refuses settings whose arrays a processor's memory cannot hold, before anything is made.

    The least that a run holds: parameters with Adam's two averages, and for every environment its
    state of the memory and a number for each step of the rollout.

    Raises:
        UserError: saying how much is needed and how much there is.
    """
    parameters = _count(agent)
    state = _count(eqx.filter_eval_shape(lambda agent: agent.init_state(), agent))
    learning = config.learning
    each = 3 * parameters + learning.num_envs * (state + learning.rollout_length)
    given = config.memory_options
    options = f" with {one_line(given, 120)}" if given else ""
    require_memory(
        4 * config.seeds * each,
        f"{config.seeds:,} seeds x ({parameters:,} parameters{options}, {learning.num_envs:,} "
        f"num_envs with {state:,} numbers of state and {learning.rollout_length:,} steps)",
    )


def _count(tree: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(eqx.filter(tree, _is_shape)))


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def agent_parts(config: "TrainConfig", task: Task) -> tuple[Any, Agent]:
    """Shapes of the arrays of the run's agent, and the agent without them."""
    return eqx.partition(abstract_agent(config, task), _is_shape)
