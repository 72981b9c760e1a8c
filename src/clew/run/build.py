"""From the settings of a run to its task and its agent."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax

from clew.agents.network import Agent, make_agent
from clew.envs.stream import AutoReset
from clew.interact import tasks
from clew.interact.task import Task

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


def agent_parts(config: "TrainConfig", task: Task) -> tuple[Any, Agent]:
    """Shapes of the arrays of the run's agent, and the agent without them."""
    return eqx.partition(
        abstract_agent(config, task), lambda x: isinstance(x, jax.ShapeDtypeStruct)
    )
