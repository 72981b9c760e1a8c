"""A run's state and its updates: a rollout, and learning from it."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from clew.agents.learners import Learner
from clew.agents.learners.base import Learned, LearnerState, all_finite
from clew.agents.network import Agent
from clew.agents.trajectory import refresh_all
from clew.envs.base import Metrics
from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.interact.host_rollout import HostState, packed
from clew.interact.rollout import (
    ActorState,
    Experience,
    gather,
    open_loop_update,
    updates_open_loop,
)
from clew.run.build import Parts, build_agent
from clew.run.start import Start


class Updated(NamedTuple):
    """The result of an update."""

    actor: Any
    """The state of acting."""
    learned: Learned
    """The new agent, the learner's new state, and the parts of the loss."""
    episodes: Metrics
    """Sums over the episodes that ended in the rollout."""


class SeedState(NamedTuple):
    """The whole state of one seed's training; arrays only."""

    agent: Any
    """The arrays of the agent; everything else in it is constant during a run."""
    learner: LearnerState
    actor: Any
    """The state of acting: an `ActorState`, or a `HostState` for Gymnasium environments."""
    key: PRNGKeyArray
    sums: dict[str, Float[Array, ""]]
    """Sums since the last row of metrics: of the parts of the loss over updates, and of the
    episodes' metrics over the episodes that ended."""
    finite: Bool[Array, ""]
    """Whether loss and parameters of the last update were finite."""

    def after(self, made: Updated, key: PRNGKeyArray, fresh_row: Bool[Array, ""]) -> "SeedState":
        """The state after an update, with the key of the next one.

        A `fresh_row` of metrics begins with the update.

        Raises:
            UserError: if the learner did not report a metric that it names.
        """
        agent, learner, losses = made.learned
        added = losses | made.episodes
        if missing := [name for name in self.sums if name not in added]:
            raise UserError(
                f"the learner's `metrics` name {', '.join(missing)}, which its `learn` does not "
                f"report; it reports {', '.join(sorted(losses))}"
            )
        sums = {
            name: jnp.where(fresh_row, 0.0, total) + jnp.asarray(added[name], total.dtype)
            for name, total in self.sums.items()
        }
        finite = all_finite((losses.get("loss"), losses.get("grad_norm"), agent))
        return SeedState(eqx.filter(agent, eqx.is_array), learner, made.actor, key, sums, finite)


class RunState(NamedTuple):
    """The contents of a checkpoint. With several seeds, `seed` has them as first axis."""

    update: Int[Array, ""]
    """Number of updates made."""
    seed: SeedState

    @property
    def replay(self) -> Any:
        """The learner's replay buffer, which may be large."""
        return self.seed.learner.replay

    def with_replay(self, replay: Any) -> "RunState":
        """The state with another replay buffer."""
        learner = self.seed.learner._replace(replay=replay)
        return self._replace(seed=self.seed._replace(learner=learner))


def init_run(
    parts: Parts, numbers: Sequence[int] | None = None, start: Start | None = None
) -> RunState:
    """The state before the first update.

    Every seed starts from its own random key, `seed + i`, so that its parameters and first
    episodes equal those of a run of that seed alone bit for bit. Later they are equal up to
    rounding, since matrix products over several seeds add in another order.

    Args:
        numbers: the seeds, as many as the run has, if they are not consecutive.
        start: the agents that the seeds start with, instead of fresh ones.
    """
    config = parts.config
    numbers = range(config.seed, config.seed + config.seeds) if numbers is None else numbers
    assert len(numbers) == config.seeds
    begin = jax.jit(partial(_begin_seed, parts))
    seeds = []
    for index, number in enumerate(numbers):
        agent_key, env_key, key = jax.random.split(jax.random.key(number), 3)
        if start is None:  # built outside `begin`, where random draws compile fast
            agent = build_agent(config, parts.task, agent_key)
            seeds.append(begin(eqx.filter(agent, eqx.is_array), env_key, key))
            continue
        arrays, statistics = start.of_seed(index)
        seed = begin(arrays, env_key, key)
        if statistics:
            seed = seed._replace(actor=seed.actor._replace(statistics=packed(statistics)))
        seeds.append(seed)
    update = jnp.zeros((), jnp.int32)
    if config.seeds == 1:
        return RunState(update, seeds[0])
    return RunState(update, jax.jit(_stack)(seeds))


def _stack(trees: Sequence[SeedState]) -> SeedState:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def run_template(parts: Parts) -> RunState:
    """Shapes and types of the state; nothing is computed."""
    return jax.eval_shape(partial(init_run, parts))


def state_layouts(parts: Parts) -> RunState:
    """The layouts of the arrays of a run's state; one leaf stands for a whole branch."""
    sharding = parts.sharding
    one: Any = sharding.of_seed
    actor = parts.task.actor_layout(sharding.environments(0), one)
    whole: Any = sharding.whole
    return RunState(whole, SeedState(one, one, actor, one, one, one))


def _begin_seed(parts: Parts, arrays: Any, env_key: PRNGKeyArray, key: PRNGKeyArray) -> SeedState:
    # A memory may have one array at two places, but the loop donates every array of a state.
    agent = eqx.combine(jax.tree.map(jnp.copy, arrays), parts.static)
    actor = parts.task.init_actor(agent, parts.config.learning.num_envs, env_key)
    return begin_seed(parts, agent, actor, key)


def begin_seed(
    parts: Parts, agent: Agent, actor: ActorState | HostState, key: PRNGKeyArray
) -> SeedState:
    """The state of one seed before its first update."""
    learner = parts.learner
    of_memory = (f"memory.{name}" for name in agent.memory.metric_names)
    names = (*learner.metrics, *of_memory, "episodes", *parts.task.metric_names)
    template = partial(parts.task.rollout_template, agent, actor, learner)
    return SeedState(
        agent=eqx.filter(agent, eqx.is_array),
        learner=learner.init(agent, template),
        actor=actor,
        key=key,
        sums={name: jnp.zeros((), jnp.float32) for name in names},
        finite=jnp.ones((), jnp.bool_),
    )


def update(parts: Parts, stream: AutoReset, state: SeedState, number: Int[Array, ""]) -> SeedState:
    """One rollout and the learning from it, after `number` updates."""
    agent = eqx.combine(state.agent, parts.static)
    key, rollout_key, learn_key = jax.random.split(state.key, 3)
    made = act_and_learn(
        agent,
        state.learner,
        state.actor,
        rollout_key,
        learn_key,
        number,
        stream=stream,
        learner=parts.learner,
    )
    return state.after(made, key, number % parts.config.log_every == 0)


def act_and_learn(
    agent: Agent,
    state: LearnerState,
    actor: ActorState,
    rollout_key: PRNGKeyArray,
    learn_key: PRNGKeyArray,
    number: Int[Array, ""] | int,
    *,
    stream: AutoReset,
    learner: Learner,
) -> Updated:
    """One update in a task written in JAX, after `number` others, in the form that learner and
    task require."""
    first_step = number * learner.config.rollout_length
    if updates_open_loop(learner, stream.env):
        return Updated(
            *open_loop_update(agent, state, actor, rollout_key, first_step, stream.env, learner)
        )
    gathered = gather(agent, actor, rollout_key, first_step, stream=stream, learner=learner)
    return learn(agent, state, gathered, learn_key, learner)


def learn(
    agent: Agent, state: LearnerState, gathered: Experience, key: PRNGKeyArray, learner: Learner
) -> Updated:
    """Learns from a rollout, however it was gathered."""
    actor, rollout, episodes = gathered
    learned = Learned(*learner.learn(agent, state, rollout, key))
    # The memory's cache was computed with the old parameters.
    memory = refresh_all(learned.agent, rollout.memory, learner.config.num_envs)
    return Updated(actor._replace(memory=memory), learned, episodes)
