"""The whole training loop, acting and learning by turns, as one compiled program."""

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from clew.agents.devices import jit_over
from clew.agents.network import Agent
from clew.envs import ENVS
from clew.interact.host_rollout import HostState
from clew.interact.rollout import ActorState
from clew.memory import MEMORIES
from clew.names import find
from clew.run.build import Parts, build_agent
from clew.run.machine import planned_bytes, require_memory
from clew.run.sharding import place_on_devices
from clew.run.updates import SeedState, act_and_learn


class RunState(NamedTuple):
    """What a checkpoint holds. With several seeds, `seed` has them as first axis."""

    update: Int[Array, ""]
    """Number of updates made."""
    seed: SeedState

    @property
    def replay(self) -> Any:
        """What the learner replays, which may be large."""
        return self.seed.learner.replay

    def with_replay(self, replay: Any) -> "RunState":
        """The state with something else in its place."""
        learner = self.seed.learner._replace(replay=replay)
        return self._replace(seed=self.seed._replace(learner=learner))


class Program(Protocol):
    """What makes the updates of a run: a compiled loop, or one with environments on the host."""

    @property
    def state(self) -> RunState | None:
        """After the last whole update, also of a call that raised; None before the first."""
        ...

    def __call__(self, state: RunState, count: Int[Array, ""]) -> RunState:
        """Makes `count` updates, or fewer if one gives a number that is not finite.

        The given state is used up.

        Raises:
            EnvironmentFault: Gymnasium environments failed too often.
        """
        ...

    def measured(self) -> dict[str, Any]:
        """What was measured since the last call of this method, for a row of metrics."""
        ...

    def close(self) -> None:
        """Closes environments and ends processes, if there are any."""


class CompiledProgram:
    """A loop of updates that is compiled as one, for one device or several.

    Args:
        parts: of the run.
        compiled: the loop.
    """

    def __init__(self, parts: Parts, compiled: Any):
        self.compiled = compiled
        self.state: RunState | None = None
        self._layouts = state_layouts(parts), parts.sharding.whole

    def __call__(self, state: RunState, count: Int[Array, ""]) -> RunState:
        """See `Program`."""
        placed = map(place_on_devices, (state, count), self._layouts)
        self.state = state = self.compiled(*placed)
        return state

    def measured(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Does nothing."""


_COMPILED: dict[Hashable, Any] = {}
_KEPT = 4
_COMPILING = threading.Lock()


def init_run(parts: Parts, numbers: Sequence[int] | None = None) -> RunState:
    """The state before the first update.

    Every seed starts from its own random key, `seed + i`, so that its parameters and first
    episodes are bit for bit those of a run of that seed alone. What follows is equal up to
    rounding, since products over several seeds add in another order.

    Args:
        parts: of the run.
        numbers: as many seeds as the run has, if they do not follow each other.
    """
    config = parts.config
    numbers = range(config.seed, config.seed + config.seeds) if numbers is None else numbers
    assert len(numbers) == config.seeds
    begin = jax.jit(partial(_begin_seed, parts))
    seeds = [_init_seed(parts, begin, jax.random.key(number)) for number in numbers]
    update = jnp.zeros((), jnp.int32)
    if config.seeds == 1:
        return RunState(update, seeds[0])
    return RunState(update, jax.jit(_stack)(seeds))


def _stack(trees: Sequence[SeedState]) -> SeedState:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def run_template(parts: Parts) -> RunState:
    """Shapes and types of the state; nothing is computed."""
    return jax.eval_shape(partial(init_run, parts))


def compile_program(parts: Parts) -> CompiledProgram:
    """Compiles the loop, or takes it from the cache of compiled loops.

    The number of updates is an argument of the program, so that one program serves all calls: a
    resumed run computes bit for bit what it would have without the interruption.
    """
    config = parts.config
    # A process that resumes a run, or repeats one, has the program already.
    # Two tasks of one name outside of the registry may differ, so their programs are not shared.
    task = ENVS.get(config.env, jax.tree.structure(parts.jax_stream))
    devices = config.devices, config.device_threads
    memory = find("memory", config.memory, MEMORIES)
    key = (config.digest(), devices, task, memory, type(parts.learner), type(parts.static.encoder))
    with _COMPILING:
        if key not in _COMPILED:
            while len(_COMPILED) >= _KEPT:
                del _COMPILED[next(iter(_COMPILED))]
            _COMPILED[key] = compile_loop(parts, partial(_update_all, parts))
        return CompiledProgram(parts, _COMPILED[key])


def compile_loop(parts: Parts, one: Callable[[SeedState, Int[Array, ""]], SeedState]) -> Any:
    """Compiles `advance` for the run's devices.

    Raises:
        UserError: if the program holds more than this machine's memory.
    """
    sharding, layouts = parts.sharding, state_layouts(parts)
    options: dict[str, Any] = {}
    if sharding.mesh is not None:
        options = {"in_shardings": (layouts, sharding.whole), "out_shardings": layouts}
    jitted = jit_over(sharding.mesh, partial(advance, one), donate_argnums=0, **options)
    lowered = jitted.lower(run_template(parts), jax.ShapeDtypeStruct((), jnp.int32))
    compiled = lowered.compile(compiler_options=sharding.compiler_options)
    require_room(parts, compiled)
    return compiled


def require_room(parts: Parts, compiled: Any) -> None:
    """Refuses a program that holds more than this machine's memory, before it runs.

    Raises:
        UserError: saying how much it needs and how much there is.
    """
    learning, devices = parts.config.learning, max(1, parts.config.devices)
    require_memory(
        devices * planned_bytes(compiled),
        f"so much the compiled program holds at once, for {parts.config.seeds:,} seeds x "
        f"{learning.num_envs:,} num_envs x {learning.rollout_length:,} steps",
    )


def state_layouts(parts: Parts) -> RunState:
    """Where the arrays of a run's state belong, a leaf of it standing for whole branches."""
    sharding = parts.sharding
    one: Any = sharding.of_seed
    actor = parts.task.actor_layout(sharding.environments(0), one)
    whole: Any = sharding.whole
    return RunState(whole, SeedState(one, one, actor, one, one, one))


def _init_seed(parts: Parts, begin: Callable[..., SeedState], key: PRNGKeyArray) -> SeedState:
    """One seed's state; the agent is built outside of `begin`, where its draws compile little."""
    agent_key, env_key, key = jax.random.split(key, 3)
    agent = build_agent(parts.config, parts.task, agent_key)
    return begin(eqx.filter(agent, eqx.is_array), env_key, key)


def _begin_seed(parts: Parts, arrays: Any, env_key: PRNGKeyArray, key: PRNGKeyArray) -> SeedState:
    # A memory may have one array at two places, and the loop uses up every array of a state.
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


def advance(
    one: Callable[[SeedState, Int[Array, ""]], SeedState],
    state: RunState,
    count: Int[Array, ""],
) -> RunState:
    """So many updates, or fewer if one gives a number that is not finite.

    Args:
        one: an update of all seeds, from their state and the number of updates before it.
        state: where to begin.
        count: of updates.
    """
    stop = state.update + count

    def more(state: RunState) -> Bool[Array, ""]:
        return (state.update < stop) & jnp.all(state.seed.finite)

    def body(state: RunState) -> RunState:
        return RunState(state.update + 1, one(state.seed, state.update))

    return jax.lax.while_loop(more, body, state)


def _update_all(parts: Parts, state: SeedState, number: Int[Array, ""]) -> SeedState:
    return parts.sharding.each_seed(partial(update, parts), (0, None))(state, number)


def update(parts: Parts, state: SeedState, number: Int[Array, ""]) -> SeedState:
    """One rollout and what is learned from it, after so many updates."""
    agent = eqx.combine(state.agent, parts.static)
    key, rollout_key, learn_key = jax.random.split(state.key, 3)
    made = act_and_learn(
        agent,
        state.learner,
        state.actor,
        rollout_key,
        learn_key,
        number,
        stream=parts.jax_stream,
        learner=parts.learner,
    )
    return state.after(made, key, number % parts.config.log_every == 0)
