"""An actor, in any process: it opens its environments and gathers rollouts."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from clew.agents.network import Agent
from clew.agents.trajectory import empty_memories, refresh_all
from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream
from clew.interact.host_rollout import HostRollout, environment_seed
from clew.interact.hosted_task import HostedTask
from clew.memory.base import State
from clew.run.asynchronous.heartbeat import Heartbeat
from clew.run.build import abstract_agent, parts_of
from clew.run.config import TrainConfig
from clew.run.hosted import host_actor
from clew.run.machine import use_threads


class ActorParams(NamedTuple):
    """What the learner sends to all actors after an update, as NumPy arrays."""

    params: PyTree[np.ndarray]
    """The arrays of the agent."""
    statistics: dict[str, Any]
    """The wrappers' statistics over the observations of all actors."""
    key: np.ndarray
    """Data of the random key from which an actor derives its own."""


class Gathered(NamedTuple):
    """A rollout that an actor gathered."""

    acted: HostRollout
    begin: dict[str, Any]
    """The wrappers' statistics before the rollout."""
    end: dict[str, Any]
    """The wrappers' statistics after it."""


class ActorSpec(NamedTuple):
    """What an actor needs to know about the run; it can be pickled."""

    config: TrainConfig
    task: HostedTask
    number: int
    """The actor's number."""
    num_envs: int
    """How many environments it has."""


class Actor:
    """Acts in its own environments."""

    def __init__(self, spec: ActorSpec, heartbeat: Heartbeat):
        self._spec, self._heartbeat = spec, heartbeat
        # The devices belong to the learner.
        config = replace(spec.config, devices=1)
        parts = parts_of(config, spec.task, config.learner)
        self._static, self._length = parts.static, parts.learner.config.rollout_length
        first = spec.number * spec.num_envs
        self._actor = host_actor(parts, range(first, first + spec.num_envs))
        self._refresh = jax.jit(partial(_refresh, self._static, spec.num_envs))
        self._stream: GymnasiumStream | None = None
        self._steps: list[GymnasiumStep] = []
        self._memory: State = None
        self._params: PyTree[Array] = None
        self._version, self._made, self._fresh = -1, 0, False

    def rollout(self, version: int, latest: ActorParams, opening: int) -> Gathered:
        """Acts for one rollout; opens the environments before the first, and after a fault.

        `opening`, how often environments of the run have been reopened, goes into their seed.

        Raises:
            EnvironmentFault: an environment failed. The environments are closed, and the rollout
                so far is lost.
        """
        try:
            if self._stream is None:
                self._open(version, latest, opening)
            return self._gather(version, latest)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the environments."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._steps = None, []

    def _open(self, version: int, latest: ActorParams, opening: int) -> None:
        spec = self._spec
        # The first actor has the same environments as the synchronous runner.
        own = [spec.number] if spec.number else []
        seed = environment_seed(spec.config.seed, version, opening, *own)
        with self._heartbeat.at_environments():
            self._stream = spec.task.open(spec.num_envs, seed=seed)
            self._stream.show_progress(self._heartbeat.progress)
            self._stream.restore(latest.statistics)
            self._steps = [self._stream.reset(timeout=spec.config.host.timeout)]
        agent = eqx.combine(latest.params, self._static)
        self._memory = jax.tree.map(jnp.asarray, empty_memories(agent, spec.num_envs))
        self._version, self._fresh = -1, True

    def _gather(self, version: int, latest: ActorParams) -> Gathered:
        stream = self._stream
        assert stream is not None
        if version != self._version:
            self._params = jax.tree.map(jnp.asarray, latest.params)
            # The memory's cache was computed with older parameters.
            self._memory = self._refresh(self._params, self._memory)
            self._version, self._made = version, 0
        if not self._fresh:  # statistics that were just restored include first observations
            stream.restore(latest.statistics)
        begin = latest.statistics
        key = actors_key(latest.key, self._spec.number, self._made)
        watched = cast(GymnasiumStream, _Watched(stream, self._heartbeat))
        acted, steps = self._actor.rollout(
            [watched], self._steps, self._params, self._memory, key, version * self._length
        )
        self._memory, self._steps = acted.memory, list(steps)
        self._made, self._fresh = self._made + 1, False
        return Gathered(acted, begin, stream.state())


class _Watched:
    """A stream that sends a heartbeat at every step."""

    def __init__(self, stream: GymnasiumStream, heartbeat: Heartbeat):
        self._stream, self._heartbeat = stream, heartbeat

    def step_async(self, actions: Any) -> None:
        with self._heartbeat.at_environments():
            self._stream.step_async(actions)

    def step_wait(self, timeout: float | None = None) -> GymnasiumStep:
        with self._heartbeat.at_environments():
            return self._stream.step_wait(timeout)


def actors_key(data: np.ndarray, number: int, made: int) -> Array:
    """The key of a rollout: the update's key for the first actor's first rollout, else its own."""
    key = jax.random.wrap_key_data(jnp.asarray(data))
    if number == made == 0:
        return key
    return jax.random.fold_in(jax.random.fold_in(key, number), made)


def gathered_template(config: TrainConfig, task: HostedTask, num_envs: int) -> Gathered:
    """Shapes and types of a rollout; nothing is computed."""
    agent, statistics = abstract_agent(config, task), task.statistics()
    acted = task.host_rollout_template(agent, num_envs, config.learner)
    return Gathered(acted, statistics, statistics)


def _refresh(static: Agent, num_envs: int, params: PyTree[Array], memory: State) -> State:
    return refresh_all(eqx.combine(params, static), memory, num_envs)


def use_one_thread() -> None:
    """Makes JAX compute on one CPU thread, so that actors do not compete for cores."""
    jax.config.update("jax_platforms", "cpu")
    use_threads(1)
