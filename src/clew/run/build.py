"""From the settings of a run to its task and its agent."""

from typing import Any

import equinox as eqx
import jax

from clew.agents.network import Agent, make_agent
from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.interact import tasks
from clew.interact.tasks import HostSide, Stream
from clew.run.config import TrainConfig


def make_stream(config: TrainConfig) -> Stream:
    """The run's task as an endless stream of episodes, or what opens such streams.

    Raises:
        UserError: for an unknown task or option, or an impossible value.
    """
    return tasks.make_stream(config.env, config.env_options, config.wrappers)


def jax_stream(config: TrainConfig) -> AutoReset:
    """The run's task, which must be one written in JAX.

    Raises:
        UserError: as `make_stream`, or for an environment of others.
    """
    stream = make_stream(config)
    if isinstance(stream, HostSide):
        raise UserError(f"this needs a task written in JAX, got {config.env}")
    return stream


def build_agent(config: TrainConfig, stream: Stream, key: jax.Array) -> Agent:
    """The run's agent before training.

    Raises:
        UserError: for an unknown memory or option, or an impossible value.
    """
    return make_agent(
        config.memory,
        config.memory_options,
        observation_space=stream.observation_space,
        action_space=stream.action_space,
        network=config.network,
        key=key,
    )


def abstract_agent(config: TrainConfig, stream: Stream) -> Agent:
    """The run's agent with shapes in place of arrays; nothing is computed."""
    return eqx.filter_eval_shape(lambda key: build_agent(config, stream, key), jax.random.key(0))


def agent_parts(config: TrainConfig, stream: Stream) -> tuple[Any, Agent]:
    """Shapes of the arrays of the run's agent, and the agent without them."""
    return eqx.partition(
        abstract_agent(config, stream), lambda x: isinstance(x, jax.ShapeDtypeStruct)
    )
