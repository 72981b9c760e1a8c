"""Acting in Gymnasium environments: the host steps them, the compiled network chooses."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, PRNGKeyArray, PyTree, UInt32

from clew.agents.heads import Behaviour, Clock, Outputs, known_value
from clew.agents.learners import Learner
from clew.agents.network import Agent
from clew.agents.trajectory import Trajectory, empty_memories, step_all
from clew.bridges.gymnasium.stream import GymnasiumStep, GymnasiumStream
from clew.envs.base import Observation
from clew.interact.acting import act, step
from clew.memory.base import State

Leaves = PyTree[np.ndarray]
KEPT = ("action", "log_prob", "value")
"""Values of the choices that a rollout keeps."""


class HostState(NamedTuple):
    """The part of acting's state that can be saved; the environments themselves cannot."""

    memory: State
    """The state before the next observation, each leaf [B, ...]."""
    statistics: PyTree[UInt32[Array, "..."]]
    """The wrappers' statistics, `packed`."""


class HostRollout(NamedTuple):
    """The result of a rollout."""

    experience: Trajectory
    """The trajectory of B environments, as the host gathered it: NumPy arrays; several seeds are
    the first axis of every leaf. `state0` is empty, see `states`. If a step truncated an episode
    and opened the next one at once, the reward includes the discounted value of the final
    observation, and the discount is 0."""
    states: tuple[State, ...]
    """The memory's state before each sequence of the rollout."""
    memory: State
    """The state before the observation after the last step."""
    sums: dict[str, np.ndarray]
    """Sums over the episodes that ended in it: "episodes" and the stream's metrics."""


class RolloutStopped(Exception):
    """The run is to end before a rollout is complete; the part so far is lost."""


class HostActor:
    """Acts for one agent, or for several seeds side by side, each in its own environments.

    Args:
        static: the agent without its arrays.
        compile_seeds: compiles a function of one seed for all of them, see
            `clew.run.sharding.Sharding.compile`.
        timeout: seconds after which an environment in a worker process counts as hung.
        environments: their indices among those of the run.
        stopped: whether the run is to end; called before every step.
    """

    def __init__(
        self,
        static: Agent,
        learner: Learner,
        compile_seeds: Callable[..., Callable],
        *,
        seeds: int,
        timeout: float,
        environments: range,
        stopped: Callable[[], bool] = lambda: False,
    ):
        self._stopped = stopped
        self._static, self._seeds, self._timeout = static, seeds, timeout
        self._length, self._gamma = learner.config.rollout_length, np.float32(learner.config.gamma)
        # The memory's state before each sequence is kept for the learner.
        self._sequence = learner.gathering.sequence_length or self._length
        # A state is donated when its observation is read, so that a window is updated in place.
        self._choose = compile_seeds(
            partial(_choose, static, learner.gathering.behaviour, np.array(environments, np.int32)),
            (0, 0, 0, 0, 0, None, None),
            donate_argnums=1,
        )
        self._bootstrap_value = compile_seeds(partial(_bootstrap_value, static), (0, 0, 0))

    def rollout(
        self,
        streams: Sequence[GymnasiumStream],
        steps: Sequence[GymnasiumStep],
        params: PyTree[Array],
        memory: State,
        key: PRNGKeyArray,
        first_step: int,
    ) -> tuple[HostRollout, Sequence[GymnasiumStep]]:
        """Acts for a rollout.

        Args:
            streams: one for every seed.
            steps: the latest step of each stream.
            params: the agent's arrays.
            memory: the state before these steps' observations; it is donated.
            key: of the actions, one for every seed.
            first_step: how often each environment was stepped before, in the whole run.

        Returns:
            The rollout, and the latest step of each stream.

        Raises:
            EnvironmentFault: an environment failed; the rollout so far is lost.
            RolloutStopped: the run is to end.
        """
        seen, rows, states = [_seen(steps)], [], []
        for time in range(self._length):
            if self._stopped():
                raise RolloutStopped
            if time % self._sequence == 0:
                states.append(jax.tree.map(jnp.copy, memory))
            observation, start, _ = seen[-1]
            now = np.int32(time), np.int32(first_step + time)
            memory, chosen = self._choose(params, memory, observation, start, key, *now)
            action, log_prob, value = (chosen[name] for name in KEPT)
            action = np.asarray(action)
            actions = list(action) if self._seeds > 1 else [action]
            steps = step(streams, self._static.distribution, actions, self._timeout)
            reward, discount, ended, metrics = self._outcomes(steps, params, memory)
            acted = (action, reward, discount, np.asarray(log_prob), np.asarray(value))
            rows.append((*acted, ended, metrics))
            seen.append(_seen(steps))
        *acted, ended, metrics = self._stacked(rows)
        observed = self._stacked(seen)
        axes = (-2, -1)
        sums = {"episodes": ended.sum(axes, dtype=np.float32)}
        sums |= {name: x.sum(axes, dtype=np.float32) for name, x in metrics.items()}
        experience = Trajectory(*observed, *acted, state0=())
        return HostRollout(experience, tuple(states), memory, sums), steps

    def _outcomes(
        self, steps: Sequence[GymnasiumStep], params: PyTree[Array], memory: State
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Rewards and discounts, which episodes ended, and the metrics of these."""
        rows = [(s.reward, s.discount, s.ended, s.metrics) for s in steps]
        reward, discount, ended, metrics = of_seeds(rows)
        if any(s.final is not None for s in steps):
            # The next episode is already open, so only the reward can carry the final value.
            never = np.zeros_like(steps[0].start)
            finals = [s.final or (never, s.observation) for s in steps]
            cut, observation = of_seeds(finals)
            value = np.asarray(self._bootstrap_value(params, memory, observation))
            reward = np.where(cut, reward + self._gamma * value, reward)
            discount = np.where(cut, np.float32(0), discount)
        return reward, discount, ended, metrics

    def _stacked(self, rows: Sequence[Leaves]) -> Leaves:
        """One tree of all time steps: [T, ...], or [seeds, T, ...]."""
        axis = 0 if self._seeds == 1 else 1
        return jax.tree.map(lambda *leaves: np.stack(leaves, axis), *rows)


def _seen(steps: Sequence[GymnasiumStep]) -> tuple[Leaves, np.ndarray, np.ndarray]:
    return of_seeds([(s.observation, s.start, s.last) for s in steps])


def _choose(
    static: Agent,
    behaviour: Behaviour,
    environments: np.ndarray,
    params: PyTree[Array],
    memory: State,
    observation: Observation,
    start: Array,
    key: PRNGKeyArray,
    time: Array,
    step: Array,
) -> tuple[State, dict[str, Any]]:
    """`act` with the policy that gathers rollouts."""
    clock = Clock(jnp.asarray(environments), step)

    def behave(outputs: Outputs) -> Array:
        return behaviour(outputs, clock)

    return act(static, False, KEPT, params, memory, observation, start, key, time, behave)


def _bootstrap_value(
    static: Agent, params: PyTree[Array], memory: State, observation: Observation
) -> Array:
    """The value of final observations; the memory's state is not changed by them."""
    agent = eqx.combine(params, static)
    never = jnp.zeros(jax.tree.leaves(observation)[0].shape[0], bool)
    return known_value(step_all(agent, memory, observation, never)[1])


def rollout_template(
    agent: Agent,
    observation_space: Any,
    metric_names: Sequence[str],
    num_envs: int,
    learner: Learner,
) -> HostRollout:
    """Shapes and types of a rollout of one seed; nothing is computed, and the agent may have shapes
    in place of its arrays."""
    length = learner.config.rollout_length
    sequences = length // (learner.gathering.sequence_length or length)
    observation = _observations(observation_space, (length + 1, num_envs))

    def one(agent: Agent) -> tuple[State, Array]:
        noise = agent.distribution.noise(jax.random.key(0), (num_envs,))
        memory = empty_memories(agent, num_envs)
        seen = jax.tree.map(
            lambda o: jnp.zeros(o.shape[1:], jax.dtypes.canonicalize_dtype(o.dtype)), observation
        )
        _, outputs = jax.vmap(agent.step)(memory, seen, jnp.zeros(num_envs, bool))
        return memory, agent.distribution.sample(outputs.logits, noise)

    shape = jax.ShapeDtypeStruct
    memory, action = eqx.filter_eval_shape(one, agent)
    flags = shape((length + 1, num_envs), np.bool_)
    number = shape((length, num_envs), np.float32)
    actions = shape((length, *action.shape), action.dtype)
    shapes: Any = (observation, flags, flags, actions, number, number, number, number)
    sums: Any = {name: shape((), np.float32) for name in ("episodes", *metric_names)}
    return HostRollout(Trajectory(*shapes, state0=()), (memory,) * sequences, memory, sums)


def _observations(space: Any, before: tuple[int, ...]) -> PyTree:
    if isinstance(space, spaces.Dict):
        return {name: _observations(inner, before) for name, inner in space.items()}
    return jax.ShapeDtypeStruct((*before, *space.shape), space.dtype)


def packed(statistics: PyTree[np.ndarray]) -> PyTree[UInt32[Array, "..."]]:
    """Packs arrays of float64, which JAX would round, as pairs of uint32 on a new last axis."""

    def pack(array: np.ndarray) -> Array:
        whole = np.asarray(array, np.float64)
        return jnp.asarray(np.frombuffer(whole.tobytes(), np.uint32).reshape(*whole.shape, 2))

    return jax.tree.map(pack, statistics)


def unpacked(statistics: PyTree[UInt32[Array, "..."]]) -> PyTree[np.ndarray]:
    """The inverse of `packed`."""

    def unpack(array: Array) -> np.ndarray:
        bits = np.asarray(array)
        return np.frombuffer(bits.tobytes(), np.float64).reshape(bits.shape[:-1])

    return jax.tree.map(unpack, statistics)


def of_seeds(trees: Sequence[Any]) -> Any:
    """One tree of all seeds, which are the first axis unless there is only one."""
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def environment_seed(*entropy: int) -> int:
    """The seed of a stream of environments, from whole numbers that identify the stream."""
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
