"""How fast each agent of Pramanik's Memory Maze study learns, and the memory that this takes.

The thesis measured frames per second and peak memory of whole trainings on a graphics card (Figure
5.6). Here it is the learner alone, on pictures of noise: one update of the training program, one
gradient step of Table A.3's 3,200 frames, at the sizes of Table A.4. All agents are measured by
turns, so that what else the machine does meanwhile touches all of them, and what counts are the
ratios within a turn.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from clew.agents.network import Agent
from clew.interact.host_rollout import HostRollout
from clew.interact.rollout import empty_memories
from clew.interact.tasks import HostSide
from clew.lab.bench.lengths import kernel_bytes
from clew.lab.bench.medians import Median, median_of
from clew.lab.bench.speed import FORWARD_AND_BACKWARD, matrix_product_rate, planned_bytes
from clew.lab.costs import multiply_adds, parameters
from clew.lab.studies.memory_maze.grid import PRESETS
from clew.run.asynchronous.acting import gathered_template
from clew.run.compiled import Parts, SeedState, init_run, make_parts, run_template
from clew.run.config import TrainConfig
from clew.run.hosted import learn_seed

AGAINST = "gtrxl-256"
"""What the others are held against, as AReLiT is in Figure 5.6."""
SIDE, ACTIONS = 64, 6


class Plan(NamedTuple):
    """How much to measure."""

    models: tuple[str, ...]
    sequences: int = 32
    """of a timed gradient step (Table A.3: 3,200 frames in sequences of 100)"""
    planned: int = 32
    """of the gradient step whose memory is told"""
    rounds: int = 6
    """turns that count, after one that does not"""
    sizes: dict[str, Any] = {}
    """options in place of the memories' own"""


QUICK = Plan(("none", "lstm"), 2, 2, 2, {"hidden_size": 16})
"""Enough to see that everything works; its figures are none to quote."""


class Row(NamedTuple):
    """What was measured of one agent."""

    model: str
    parameters: int
    """of the whole agent"""
    multiply_adds: int
    """of the whole agent for one frame, in a sequence of 100"""
    frames: int
    """of a timed gradient step"""
    seconds: Median
    """of a gradient step and what belongs to it"""
    rate: Median
    """frames per second"""
    times_faster: Median
    """rate by that of `AGAINST`, turn by turn"""
    product_fraction: Median
    """of the machine's own products' rate in the same turn, 6 operations a multiply-add"""
    planned_frames: int
    """of the gradient step whose memory follows"""
    planned_bytes: int
    """XLA's plan of its program: arguments, results and everything between"""
    kernel_bytes: int
    """what a compiled kernel allocates besides, by formula; 0 where none runs"""

    @property
    def bytes(self) -> int:
        """The peak of a gradient step."""
        return self.planned_bytes + self.kernel_bytes


class Noise(gymnasium.Env[Any, Any]):
    """Shows what Memory Maze shows, and is never played: its spaces alone are asked for."""

    observation_space = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    action_space = spaces.Discrete(ACTIONS)


def models() -> tuple[str, ...]:
    """The agents that there are to measure."""
    return tuple(name.removeprefix("memory-maze/") for name in PRESETS)


def measure(plan: Plan, threads: int, report: Callable[[str], None]) -> tuple[list[Row], Median]:
    """All agents by turns.

    Args:
        plan: how much; its first model stands for `AGAINST` if that is not among them.
        threads: of this machine, for what kernels allocate.
        report: is told what is being done.

    Returns:
        One row an agent, and the floating-point operations per second of this machine's products.
    """
    learners = {}
    for name in plan.models:
        report(f"compiling {name}")
        learners[name] = _Learner(name, plan)
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    products: list[float] = []
    for turn in range(1 + plan.rounds):
        product = matrix_product_rate(1)
        for name, learner in learners.items():
            took = learner.run()
            report(f"turn {turn}: {name} took {took:.1f} s")
            if turn:  # the first one is not counted
                seconds[name].append(took)
        if turn:
            products.append(product)
    against = seconds.get(AGAINST, seconds[plan.models[0]])
    rows = [one.row(seconds[name], against, products, threads) for name, one in learners.items()]
    return rows, median_of(products)


class _Learner:
    """One agent's compiled update, with a rollout to learn from."""

    def __init__(self, name: str, plan: Plan):
        self._name, self._plan = name, plan
        self._config = config_of(name, plan.sequences, plan.sizes)
        parts = make_parts(self._config)
        self._seed = init_run(parts).seed
        self._agent: Agent = eqx.combine(self._seed.agent, parts.static)
        self._acted = made_up(parts, self._agent)
        self._program = _compiled(parts, self._seed, self._acted)
        self._planned = planned_bytes(self._program)
        if plan.planned != plan.sequences:
            parts = make_parts(config_of(name, plan.planned, plan.sizes))
            program = _compiled(parts, run_template(parts).seed, _shapes(parts))
            self._planned = planned_bytes(program)

    def run(self) -> float:
        """Seconds of one update."""
        begin = time.perf_counter()
        made = self._program(self._seed, self._acted, jax.random.key(1), np.bool_(True))
        jax.block_until_ready(made)
        return time.perf_counter() - begin

    def row(
        self, took: list[float], against: list[float], products: list[float], threads: int
    ) -> Row:
        """What was measured."""
        config, memory = self._config, self._agent.memory
        frames, length = config.steps_per_update, config.ppo.sequence_length
        picture = jax.ShapeDtypeStruct((SIDE, SIDE, 3), jnp.uint8)
        work = multiply_adds(self._agent, length=length, observation=picture).per_step // length
        rates = [frames / s for s in took]
        fractions = [
            FORWARD_AND_BACKWARD * work * r / p for r, p in zip(rates, products, strict=True)
        ]
        return Row(
            self._name,
            parameters(self._agent),
            work,
            frames,
            median_of(took),
            median_of(rates),
            median_of([b / a for a, b in zip(took, against, strict=True)]),
            median_of(fractions),
            self._plan.planned * length,
            self._planned,
            kernel_bytes(config.memory, memory, length, self._plan.planned, threads),
        )


def config_of(name: str, sequences: int, sizes: dict[str, Any]) -> TrainConfig:
    """An agent's settings with noise for a task.

    Args:
        name: of the agent.
        sequences: of an update, which is one gradient step; an even number.
        sizes: options in place of the memory's own.
    """
    config = PRESETS[f"memory-maze/{name}"]
    ppo = config.ppo
    envs = sequences * ppo.sequence_length // ppo.rollout_length
    ppo = replace(ppo, num_envs=envs, minibatches=1)
    options = config.memory_options | sizes
    return replace(config, env=f"{__name__}:Noise", memory_options=options, ppo=ppo)


def made_up(parts: Parts, agent: Agent) -> HostRollout:
    """A rollout of noise in the middle of episodes, with memories that have read as much.

    Windows are full there; at the beginning of an episode they are not, and cost less.
    """
    ppo, random = parts.config.ppo, np.random.default_rng(0)

    def fill(shape: jax.ShapeDtypeStruct) -> np.ndarray:
        if shape.dtype == np.uint8:
            return random.integers(0, 256, shape.shape, np.uint8)
        if np.issubdtype(shape.dtype, np.integer):
            return random.integers(0, ACTIONS, shape.shape).astype(shape.dtype)
        if shape.dtype == np.bool_:
            return np.zeros(shape.shape, np.bool_)
        return random.standard_normal(shape.shape).astype(shape.dtype)

    acted = _shapes(parts)
    experience = jax.tree.map(fill, acted.experience)
    discount, likely = np.ones_like(experience.discount), np.full_like(experience.log_prob, -1.8)
    experience = experience._replace(discount=discount, log_prob=likely)
    memory = jax.tree.map(np.asarray, _filled(agent, ppo.num_envs))
    sums = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), acted.sums)
    return HostRollout(experience, (memory,) * len(acted.states), memory, sums)


def _filled(agent: Agent, num_envs: int) -> Any:
    """Memories that have read noise for as long as the longest window, and some more."""
    memory, steps = agent.memory, 300
    zs = jax.random.normal(jax.random.key(2), (steps, num_envs, memory.input_size))
    starts = jnp.zeros((steps, num_envs), jnp.bool_)
    read = jax.jit(jax.vmap(lambda s, z, t: memory.unroll(s, z, t)[0], in_axes=(0, 1, 1)))
    return read(empty_memories(agent, num_envs), zs, starts)


def _shapes(parts: Parts) -> HostRollout:
    config, side = parts.config, cast(HostSide, parts.stream)
    return gathered_template(config, side, config.ppo.num_envs).acted


def _compiled(parts: Parts, seed: SeedState, acted: HostRollout) -> Any:
    key, fresh = jax.random.key(1), np.bool_(True)
    return jax.jit(partial(learn_seed, parts)).lower(seed, acted, key, fresh).compile()
