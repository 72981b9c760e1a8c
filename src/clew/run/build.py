"""Builds the parts of a run from its settings: task, agent, learner and devices."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax

from clew import interact
from clew.agents.learners import Learner
from clew.agents.network import Agent, make_agent, refuse_own_arguments
from clew.errors import UserError, check_call, one_line, together
from clew.interact.task import Task
from clew.memory import MEMORIES, refuse_other_classes
from clew.memory.laws.interface import require_interface
from clew.names import find, is_reference
from clew.run.asynchronous.settings import check_async
from clew.run.config import TrainConfig
from clew.run.machine import require_memory
from clew.run.sharding import Sharding, check_devices, choose_devices, sharding_of


class Parts(NamedTuple):
    """The parts of a run, besides its state; resolved once from its settings."""

    config: TrainConfig
    """The settings, with devices and threads chosen."""
    task: Task
    shapes: Any
    """Shapes of the agent's arrays."""
    static: Agent
    """The agent without its arrays."""
    learner: Learner
    sharding: Sharding


def make_parts(config: TrainConfig) -> Parts:
    """Resolves the settings of a run; no array is computed.

    Raises:
        UserError: for an unknown or impossible setting, for settings that do not fit each other,
            the task or the devices, or for arrays that do not fit into this machine's RAM.
    """
    config.check_types()
    together(
        config.validate,
        lambda: interact.check_name(config.env, config.env_options),
        lambda: check_memory(config),
    )
    task, learner = make_task(config), config.learner
    check_task(config, task, learner)
    config = choose_devices(config, task)
    check_devices(config, learner)
    parts = parts_of(config, task, learner)
    check_room(parts)
    return parts


def parts_of(config: TrainConfig, task: Task, learner: Learner) -> Parts:
    """The parts of a run whose settings are resolved."""
    shapes, static = agent_parts(config, task)
    if is_reference(config.memory):
        require_interface(eqx.combine(shapes, static).memory)
    return Parts(config, task, shapes, static, learner, sharding_of(config))


def make_task(config: TrainConfig) -> Task:
    """The run's task with its wrappers.

    Raises:
        UserError: for an unknown task or option, or an impossible value.
    """
    return interact.make_task(config.env, config.env_options, config.wrappers, config.host)


def check_task(config: TrainConfig, task: Task, learner: Learner) -> None:
    """Refuses settings that do not fit the task.

    Raises:
        UserError: naming the setting, its value and what was expected.
    """
    if learner.gathering.whole_episodes and not task.whole_episodes:
        raise UserError(f"whole_episodes needs a task written in JAX, got {config.env}")
    task.check_training(config.host.processes, learner.config.num_envs)
    check_async(config, task.runners, learner)


def build_agent(config: TrainConfig, task: Task, key: jax.Array) -> Agent:
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
        make_heads=config.learner.make_heads,
    )


def abstract_agent(config: TrainConfig, task: Task) -> Agent:
    """The run's agent with shapes in place of arrays; nothing is computed."""
    return eqx.filter_eval_shape(lambda key: build_agent(config, task, key), jax.random.key(0))


def check_memory(config: TrainConfig) -> None:
    """Refuses an unknown memory, or an unknown option of it; nothing is built.

    Raises:
        UserError: naming the nearest valid ones.
    """
    memory = find("memory", config.memory, MEMORIES)
    refuse_other_classes(config.memory, memory)
    refuse_own_arguments(config.memory_options)
    check_call(config.memory, memory, 1, key=None, **config.memory_options)


def check_room(parts: Parts) -> None:
    """Refuses settings whose arrays do not fit into RAM, before anything is made.

    This is a lower bound: parameters with Adam's two moments, and for every environment the
    memory's state and one number for each step of the rollout.

    Raises:
        UserError: with the RAM that is needed and available.
    """
    config, learning = parts.config, parts.learner.config
    agent = eqx.combine(parts.shapes, parts.static)
    parameters = _count(agent)
    state = _count(eqx.filter_eval_shape(lambda agent: agent.init_state(), agent))
    each = 3 * parameters + learning.num_envs * (state + learning.rollout_length)
    given = config.memory_options
    options = f" with {one_line(given, 120)}" if given else ""
    require_memory(
        4 * config.seeds * each,
        f"{config.seeds:,} seeds x ({parameters:,} parameters{options}, {learning.num_envs:,} "
        f"num_envs with a state of {state:,} floats and {learning.rollout_length:,} steps)",
    )


def _count(tree: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(eqx.filter(tree, _is_shape)))


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def agent_parts(config: TrainConfig, task: Task) -> tuple[Any, Agent]:
    """Shapes of the arrays of the run's agent, and the agent without them."""
    return eqx.partition(abstract_agent(config, task), _is_shape)
