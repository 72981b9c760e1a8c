"""How fast each agent of Pramanik's Memory Maze study learns, and how much memory this takes.

    python -m benchmarks.learner --output results/memory-maze-speed

The thesis measured frames per second and peak memory of whole trainings on a graphics card (Figure
5.6). Here only the learner is measured, on noise images: one update of the training program, one
gradient step of Table A.3's 3,200 frames, at the sizes of Table A.4. All agents are measured by
turns, so that other load on the machine affects all of them; compare the ratios within a turn.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from benchmarks import measured
from benchmarks.lengths import kernel_bytes
from gymnasium import spaces
from matplotlib.axes import Axes

from clew.agents.network import Agent
from clew.cli.tables import log as log_to_stderr
from clew.errors import UserError, require_at_least, unknown_name
from clew.interact.host_rollout import HostRollout
from clew.interact.hosted_task import HostedTask
from clew.interact.rollout import empty_memories
from clew.lab.bench.machine import device, matrix_product_rate, products_text, until_ready
from clew.lab.bench.speed import FORWARD_AND_BACKWARD
from clew.lab.bench.timing import Estimate, by_turns, estimate, ratio, seconds_of
from clew.lab.costs import multiply_adds, parameters
from clew.lab.studies.memory_maze.grid import PRESETS
from clew.report.document import Measured, Table, tabulate
from clew.report.figures import COLOURS, new_figure, save
from clew.run.asynchronous.actor import gathered_template
from clew.run.build import Parts, make_parts
from clew.run.config import TrainConfig
from clew.run.hosted import learn_seed
from clew.run.machine import planned_bytes, use_compilation_cache
from clew.run.updates import SeedState, init_run, run_template

FILE = "memory-maze-learner"
"""Stem of the files that are written, .json, .md and .png."""
NOTE = (
    "frames/s: of the learner, an update with one gradient step on noise; median of the turns and "
    "its 95% interval. relative to {}: ratio of the rates in the same turn. MiB: peak memory as "
    "planned by XLA + what a kernel allocates. of matmul peak: fraction of this machine's rate of "
    "matrix products."
)
AGAINST = "gtrxl-256"
"""The agent that the others are compared with, as AReLiT is in Figure 5.6."""
SIDE, ACTIONS = 64, 6
PRODUCTS = "matrix products"


class LearnerPlan(NamedTuple):
    """How much to measure."""

    models: tuple[str, ...]
    sequences: int = 32
    """of a timed gradient step (Table A.3: 3,200 frames in sequences of 100)"""
    planned: int = 32
    """of the gradient step whose memory is reported"""
    rounds: int = 6
    """counted turns, after one to warm up"""
    sizes: dict[str, Any] = {}
    """options that replace the memories' own"""


QUICK = LearnerPlan(("none", "lstm"), 2, 2, 2, {"hidden_size": 16})
"""Enough to see that everything works; not to quote."""
QUICK_NOTE = "QUICK: narrow agents, two sequences and two turns; do not quote these figures"


class Row(NamedTuple):
    """The measurements of one agent."""

    model: str
    parameters: int
    """of the whole agent"""
    multiply_adds: int
    """of the whole agent for one frame, in a sequence of 100"""
    frames: int
    """frames of a timed gradient step"""
    seconds: Estimate
    """seconds of a gradient step and of the work around it"""
    rate: Estimate
    """frames per second"""
    times_faster: Estimate
    """rate relative to that of `AGAINST`, turn by turn"""
    product_fraction: Estimate
    """as a fraction of the rate of matrix products in the turn, 6 operations per multiply-add"""
    planned_frames: int
    """frames of the gradient step whose memory follows"""
    planned_bytes: int
    """XLA's plan of its program: arguments, results and everything between"""
    kernel_bytes: int
    """memory that a compiled kernel allocates besides, by formula; 0 where none runs"""

    @property
    def bytes(self) -> int:
        """The peak of a gradient step."""
        return self.planned_bytes + self.kernel_bytes

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict() | {"bytes": self.bytes}


class Noise(gymnasium.Env[Any, Any]):
    """Has the spaces of Memory Maze, and is never stepped."""

    observation_space = spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    action_space = spaces.Discrete(ACTIONS)


def models() -> tuple[str, ...]:
    """The agents that can be measured."""
    return tuple(name.removeprefix("memory-maze/") for name in PRESETS)


def check_plan(plan: LearnerPlan) -> None:
    """Raises `UserError` for an unknown agent, or for an odd number of sequences."""
    for name in plan.models:
        if name not in models():
            raise unknown_name("agent of Memory Maze", name, models())
    require_at_least("sequences", plan.sequences, 2)
    if plan.sequences % 2:
        raise UserError(f"sequences must be even, two of them are a rollout, got {plan.sequences}")


def report(plan: LearnerPlan, log: Callable[[str], None]) -> Measured:
    """Measures the agents of the plan by turns.

    Raises:
        UserError: see `check_plan`.
    """
    check_plan(plan)
    use_compilation_cache()
    machine = device()
    rows, machine["product_rate"] = measure(plan, machine["cores"] or 1, log)
    return document(machine, plan, rows)


def document(machine: Mapping[str, Any], plan: LearnerPlan, rows: Sequence[Row]) -> Measured:
    """The measurements of `report` as JSON, Markdown and a picture, all named `FILE`."""
    found = table(rows, machine)
    return Measured(
        FILE,
        {"machine": machine, "plan": plan, "rows": [row.as_data() for row in rows]},
        [found],
        pictures={f"{FILE}.png": partial(draw, rows, title=found.title)},
    )


def table(rows: Sequence[Row], machine: Mapping[str, Any]) -> Table:
    """One row an agent."""
    lines = [
        [
            row.model,
            f"{row.parameters:,}",
            f"{row.multiply_adds / 1e6:.1f}",
            f"{row.rate:,.0f}",
            f"{row.times_faster:.2f}",
            f"{row.planned_bytes / 2**20:,.0f} + {row.kernel_bytes / 2**20:,.0f}",
            f"{row.product_fraction.middle:.0%}",
        ]
        for row in rows
    ]
    product = machine["product_rate"]
    title = (
        f"Learner, {rows[0].frames:,} frames per timed gradient step; {machine['device']}, "
        f"{machine['cores']} cores, {products_text((product.low, product.high))}"
    )
    peak, by = f"MiB at {rows[0].planned_frames:,} frames", against([row.model for row in rows])
    columns = ("", "parameters", "million multiply-adds per frame", "frames/s", f"relative to {by}")
    return tabulate(FILE, title, (*columns, peak, "of matmul peak"), lines, NOTE.format(by))


def against(names: Sequence[str]) -> str:
    """The agent that the others are compared with: `AGAINST`, or else the first."""
    return AGAINST if AGAINST in names else names[0]


def measure(
    plan: LearnerPlan, threads: int, log: Callable[[str], None]
) -> tuple[list[Row], Estimate]:
    """All agents by turns, with kernels of this many threads.

    Returns:
        One row an agent, and the floating-point operations per second of this machine's products.
    """

    def compiled(name: str) -> _Learner:
        log(f"compiling {name}")
        return _Learner(name, plan)

    with ThreadPoolExecutor(threads) as pool:  # at once: on a GPU it takes minutes
        learners = dict(zip(plan.models, pool.map(compiled, plan.models), strict=True))
    measures: dict[str, Callable[[], float]] = {PRODUCTS: lambda: matrix_product_rate(1)}
    measures |= {name: _logged(name, learner.seconds, log) for name, learner in learners.items()}
    seconds = by_turns(measures, plan.rounds, warm_up=True, log=log)
    products = seconds.pop(PRODUCTS)
    other = seconds[against(plan.models)]
    rows = [one.row(seconds[name], other, products, threads) for name, one in learners.items()]
    return rows, estimate(products)


def _logged(
    name: str, seconds: Callable[[], float], log: Callable[[str], None]
) -> Callable[[], float]:
    """The measurement, logged."""

    def measured() -> float:
        took = seconds()
        log(f"{name} took {took:.1f} s")
        return took

    return measured


class _Learner:
    """One agent's compiled update, with a rollout to learn from."""

    def __init__(self, name: str, plan: LearnerPlan):
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

    def seconds(self) -> float:
        """Seconds of one update."""
        args = self._seed.learner, self._seed, self._acted, jax.random.key(1), np.int32(0)
        return seconds_of(until_ready(lambda: self._program(*args)))

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
            estimate(took),
            estimate(rates),
            ratio(against, took),
            estimate(fractions),
            self._plan.planned * length,
            self._planned,
            kernel_bytes(memory, length, self._plan.planned, threads),
        )


def config_of(name: str, sequences: int, sizes: dict[str, Any]) -> TrainConfig:
    """An agent's settings with noise for a task, and options that replace its memory's own.

    An update is one gradient step on this many sequences, an even number.
    """
    config = PRESETS[f"memory-maze/{name}"]
    ppo = config.ppo
    envs = sequences * ppo.sequence_length // ppo.rollout_length
    ppo = replace(ppo, num_envs=envs, minibatches=1)
    options = config.memory_options | sizes
    return replace(config, env="benchmarks.learner:Noise", memory_options=options, ppo=ppo)


def made_up(parts: Parts, agent: Agent) -> HostRollout:
    """A rollout of noise in the middle of episodes, with memories that have read as much.

    There the windows are full; at the beginning of an episode they are not, and cost less.
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
    """Memories that have read noise for slightly longer than the longest window."""
    memory, steps = agent.memory, 300
    zs = jax.random.normal(jax.random.key(2), (steps, num_envs, memory.input_size))
    starts = jnp.zeros((steps, num_envs), jnp.bool_)
    read = jax.jit(jax.vmap(lambda s, z, t: memory.unroll(s, z, t)[0], in_axes=(0, 1, 1)))
    return read(empty_memories(agent, num_envs), zs, starts)


def _shapes(parts: Parts) -> HostRollout:
    config, side = parts.config, cast(HostedTask, parts.task)
    return gathered_template(config, side, config.ppo.num_envs).acted


def _compiled(parts: Parts, seed: SeedState, acted: HostRollout) -> Any:
    args = seed.learner, seed, acted, jax.random.key(1), np.int32(0)
    return jax.jit(partial(learn_seed, parts)).lower(*args).compile()


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    """Figure 5.6 of every agent, as a PNG: frames per second and MiB."""
    figure = new_figure(11.0, 4.0)
    left, right = figure.subplots(1, 2)
    names = [row.model for row in rows]
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(rows))]
    rates = [row.rate for row in rows]
    below = [rate.middle - rate.low for rate in rates]
    above = [rate.high - rate.middle for rate in rates]
    middles = [rate.middle for rate in rates]
    left.barh(names, middles, color=colours, xerr=[below, above], ecolor="black")
    right.barh(names, [row.bytes / 2**20 for row in rows], color=colours)

    def finish(axes: Axes, label: str) -> None:
        axes.set_title(label, loc="left", fontsize=11)
        axes.invert_yaxis()

    finish(left, "Speed of the learner (frames/s)")
    finish(right, f"Peak memory with {rows[0].planned_frames:,} frames (MiB)")
    figure.suptitle(title, fontsize=10)
    save(figure, path)


def plan_of(given: argparse.Namespace) -> LearnerPlan:
    """The plan that the options ask for."""
    chosen = tuple(given.memories)
    if given.quick:
        return QUICK._replace(models=chosen or QUICK.models)
    return LearnerPlan(chosen or models(), given.sequences, rounds=given.repeats)


def options_of() -> argparse.ArgumentParser:
    """The command line's options."""
    parser = measured.parser(__doc__, repeats=6)
    about = "of 100 frames in a timed gradient step, even; memory is always that of 32"
    parser.add_argument("--sequences", type=int, default=32, help=about)
    return parser


def main(args: Sequence[str] | None = None) -> int:
    """Measures, prints and writes."""
    return measured.run(
        options_of(),
        args,
        lambda given: report(plan_of(given), log_to_stderr),
        lambda folder: measured.redrawn(document, folder, FILE, Row, LearnerPlan),
        QUICK_NOTE,
    )


if __name__ == "__main__":
    sys.exit(main())
