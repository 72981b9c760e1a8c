"""Lanes: agents that train side by side in one compiled program.

Lanes differ in their seed, in hyperparameters of the learner that a program can take as numbers
(rates and costs), or in the size of their task, if one task plays several sizes at once. A run with
several seeds has a lane for each; a study trains a pack of cells as the lanes of a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast, get_args, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from clew.agents.learners import make_learner
from clew.agents.network import Agent
from clew.envs.stream import AutoReset
from clew.errors import UserError
from clew.files import finite
from clew.interact.rollout import ActorState, begin
from clew.run.build import Parts, build_agent, make_task
from clew.run.compiled import CompiledProgram, Program, compile_loop, compile_program
from clew.run.config import TrainConfig
from clew.run.metrics import LogPoint, RunLog
from clew.run.start import read_shared_start
from clew.run.updates import RunState, SeedState, begin_seed, init_run, update

SIZES = "several sizes"
"""Name under which a task that plays several sizes at once is registered for the time being."""

Hyperparameters = Mapping[str, Float[Array, " lanes"]]
"""Name of a learner's setting to its value in every lane."""
Curve = dict[str, list[Any]]
"""Name of a column to its values at the log points."""


class Lane(NamedTuple):
    """One agent of a program."""

    config: TrainConfig
    """Settings of this lane, with its own seed."""
    size: int = 0
    """Index of the size of the task that it plays."""
    name: str = ""
    """For messages."""


def can_differ(config: TrainConfig, name: str) -> bool:
    """Whether lanes of one program may differ in a setting of the learner.

    They may in rates and costs, numbers that the compiled program multiplies with. A warm-up is a
    number of gradient steps and part of the program, and all lanes have the same heads.
    """
    hint = get_type_hints(type(config.learning)).get(name)
    if float not in (hint, *get_args(hint)) or name == "warmup_fraction":
        return False
    return _heads_options(config, name, 0.25) == _heads_options(config, name, 0.5)


def _heads_options(config: TrainConfig, name: str, value: float) -> dict[str, Any]:
    """The options of the heads, besides their size, for a learner with this value of a setting."""
    learning = replace(cast(Any, config.learning), **{name: value})
    make_heads = make_learner(config.algorithm, learning, config.updates).make_heads
    return make_heads.keywords if isinstance(make_heads, partial) else {}


def seed_lanes(config: TrainConfig) -> list[Lane]:
    """The lanes of a run: one for every seed, without a name if there is only one."""
    numbers = range(config.seed, config.seed + config.seeds)
    name = "seed {}" if config.seeds > 1 else ""
    return [Lane(replace(config, seed=n, seeds=1), name=name.format(n)) for n in numbers]


def lanes_config(lanes: Sequence[Lane]) -> TrainConfig:
    """The settings of the program of some lanes.

    Lanes on several sizes of a task make one update per episode, so that all make the same number;
    shorter episodes wait.
    """
    sizes = {lane.size: lane.config for lane in lanes}
    if len(sizes) == 1:
        return replace(lanes[0].config, seeds=len(lanes))
    # It also has the widest window, if they differ in it.
    first = max(sizes.values(), key=lambda config: config.learning.rollout_length)
    assert len({config.updates for config in sizes.values()}) == 1
    return replace(
        first,
        env=SIZES,
        env_options={"task": first.env, "variants": [c.env_options for c in sizes.values()]},
        seed=0,
        seeds=len(lanes),
    )


def compile_lanes(parts: Parts, lanes: Sequence[Lane], names: Sequence[str] = ()) -> Program:
    """The program of some lanes, for the parts of a run with as many seeds.

    They differ in the learner's settings called `names`: rates and costs.
    """
    if not names:
        return compile_program(parts)
    own = {
        name: jnp.array([getattr(lane.config.learning, name) for lane in lanes], jnp.float32)
        for name in names
    }
    if len(lanes) == 1:
        own = {name: values[0] for name, values in own.items()}
    update_lane = partial(_update_lane, parts, parts.task.require_stream())
    one = parts.sharding.each_seed(update_lane, (0, None, 0))
    loop = compile_loop(parts, lambda seeds, number: one(seeds, number, own))
    return CompiledProgram(parts, loop)


def _update_lane(
    parts: Parts, stream: AutoReset, seed: SeedState, number: Array, own: Hyperparameters
) -> SeedState:
    config = parts.config
    learning = replace(cast(Any, parts.learner.config), **own)
    learner = make_learner(config.algorithm, learning, config.updates)
    return update(parts._replace(learner=learner), stream, seed, number)


def init_lanes(parts: Parts, lanes: Sequence[Lane]) -> RunState:
    """The state before the first update: every lane begins as it would in a run of its own.

    An agent whose observation is smaller than the program's gets weight rows of zeros for the rest.
    They are multiplied with zeros, so they never change.
    """
    if parts.config.env != SIZES:
        return init_run(parts, [lane.config.seed for lane in lanes], read_shared_start(parts))
    if parts.config.start_from:
        raise UserError("start_from is for agents on one size of a task, not on several at once")
    keys = [jax.random.split(jax.random.key(lane.config.seed), 3) for lane in lanes]
    agents = [_agent_of(lane, key[0], parts.shapes) for lane, key in zip(lanes, keys, strict=True)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *agents)
    sizes = np.array([lane.size for lane in lanes], np.int32)
    one = jax.vmap(partial(_begin_lane, parts))
    return RunState(jnp.zeros((), jnp.int32), jax.jit(one)(stacked, jnp.stack(keys), sizes))


def _agent_of(lane: Lane, key: PRNGKeyArray, template: Any) -> Any:
    """Arrays of the lane's agent, in the program's shapes."""
    agent = build_agent(lane.config, make_task(lane.config), key)
    leaves = jax.device_get(jax.tree.leaves(eqx.filter(agent, eqx.is_array)))
    shapes, tree = jax.tree.flatten(template)
    padded = [np.zeros(shape.shape, shape.dtype) for shape in shapes]
    for whole, leaf in zip(padded, leaves, strict=True):
        whole[tuple(slice(n) for n in leaf.shape)] = leaf
    return jax.tree.unflatten(tree, padded)


def _begin_lane(parts: Parts, arrays: Any, keys: PRNGKeyArray, size: Array) -> SeedState:
    _, env_key, key = keys
    agent = eqx.combine(arrays, parts.static)
    actor = open_lane(parts, agent, jax.random.split(env_key, parts.config.learning.num_envs), size)
    return begin_seed(parts, agent, actor, key)


def open_lane(parts: Parts, agent: Agent, keys: Array, size: Array) -> ActorState:
    """A lane's acting state before the first observation of its environments, one for each key."""
    stream = parts.task.require_stream()
    env: Any = stream.env
    reset = partial(env.reset_in, size) if parts.config.env == SIZES else env.reset
    return begin(agent, *jax.vmap(stream.opened)(*jax.vmap(reset)(keys)))


class Curves(RunLog):
    """The learning curves of a run's lanes, as a `RunLog`; a checkpoint contains all of them.

    Attributes:
        curves: for every lane "steps", "episodes" that ended since the last log point, and the
            mean of these in the metric that is the score.
    """

    def __init__(self, lanes: Sequence[Lane], score: str):
        self._lanes, self._score = lanes, score
        self.curves: list[Curve] = []

    def open(self, update: int, meta: dict[str, Any]) -> None:
        """Starts empty, or with the curves from a checkpoint."""
        fresh: list[Curve] = [{"steps": [], "episodes": [], self._score: []} for _ in self._lanes]
        self.curves = meta["curves"] if meta else fresh

    def log(self, point: LogPoint) -> None:
        """Adds a point to every lane's curve."""
        seen = jax.device_get((point.sums["episodes"], point.sums[self._score]))
        episodes, totals = (np.atleast_1d(values) for values in seen)
        for lane, curve, number, total in zip(
            self._lanes, self.curves, episodes, totals, strict=True
        ):
            curve["steps"].append(point.update * lane.config.steps_per_update)
            curve["episodes"].append(int(number))
            curve[self._score].append(finite(total / number, 6) if number else None)

    def meta(self) -> dict[str, Any]:
        return {"curves": self.curves}
