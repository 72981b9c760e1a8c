"""How fast each memory acts, learns and trains, relative to the machine's matrix products.

Everything is measured on the programs that training runs, at the sizes of Pramanik (2023), Table
A.2. `measure` refuses a memory that breaks a law: the speed of an incorrect model is meaningless.
"""

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.agents.devices import jit_over
from clew.agents.learners.a2c import A2CConfig, a2c_loss
from clew.agents.network import Agent
from clew.errors import parameters_of, unknown_name
from clew.interact.rollout import rollout
from clew.lab.bench.machine import device, matrix_product_rate, products_text, rate_of
from clew.lab.bench.timing import Estimate, seconds_of
from clew.lab.costs import multiply_adds, parameters
from clew.lab.studies.tmaze.grid import PRESETS
from clew.memory import MEMORIES, options_among
from clew.memory.laws import LawBroken, check
from clew.names import is_reference, resolve
from clew.report.document import Measured, NothingMeasured, Table, tabulate
from clew.run.build import Parts, make_parts
from clew.run.compiled import CompiledProgram, compile_program
from clew.run.config import TrainConfig
from clew.run.machine import planned_bytes
from clew.run.updates import RunState, init_run

SIZES = {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "head_size": 64, "window": 128}
"""Sizes of Table A.2, for memories that the thesis did not train on the T-Maze."""

FORWARD, FORWARD_AND_BACKWARD = 2, 6
"""Floating-point operations for one multiply-add: two forward, and twice that again backward."""


class SpeedPlan(NamedTuple):
    """How much to measure."""

    num_envs: int = 8
    """environments stepped in parallel"""
    length: int = 256
    """steps of every environment in a rollout"""
    repeats: int = 5
    """timed calls of every program, after an untimed one"""
    law_lengths: tuple[int, ...] = (1, 7)
    """chunk lengths at which the laws are checked first"""


QUICK = SpeedPlan(length=32, repeats=2, law_lengths=(3,))
"""Enough to see that everything works, but too little to quote."""


NOTE = (
    "environment steps per second: median of the repeats ± the largest deviation from it; with "
    "more than eight repeats, ± the larger side of the median's 95% interval\n"
    "of matmul peak: fraction of the rate of large matrix products, acting / learning / training"
)
QUICK_NOTE = "QUICK: rollouts of 32 steps and two repeats; do not quote these figures"


class Figures(NamedTuple):
    """The measurements of one memory."""

    name: str
    memory: str
    options: dict[str, Any]
    devices: int
    """that shared the computation, as `clew train` chooses them"""
    parameters: int
    """of the whole agent"""
    multiply_adds: int
    """of the whole agent, in one step of one environment"""
    acting: Estimate
    """environment steps per second of a rollout: memory, heads, sampling, environment"""
    learning: Estimate
    """samples per second: value and gradient of the A2C loss on one rollout"""
    training: Estimate
    """environment steps per second of the compiled training program, acting and learning"""
    peak_bytes: int
    """peak of the arrays that the training program holds on all devices, as planned by XLA"""
    compile_seconds: float
    """to trace and compile the training program, without a cache"""
    product_rate: float
    """floating-point operations per second of this machine's matrix product, before and after"""
    acting_fraction: float
    learning_fraction: float
    training_fraction: float
    """of the product rate: useful operations, 2 per multiply-add forward and 6 with backward"""
    largest_deviation: float
    """in the laws that were checked first"""

    def as_data(self) -> dict[str, Any]:
        """For JSON; rates are a median with the slowest and fastest, or above 8 repeats its
        interval."""
        rates = {"acting": self.acting, "learning": self.learning, "training": self.training}
        data = {k: {"median": r.middle, "low": r.low, "high": r.high} for k, r in rates.items()}
        return self._asdict() | data


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """The cases that can be measured: a name to a memory and its options.

    These are the agents of Pramanik's T-Maze study, and every other memory at the same width and
    depth.
    """
    found = {
        name.partition("/")[2]: (preset.memory, preset.memory_options)
        for name, preset in PRESETS.items()
    }
    measured = {preset.identity()["memory"] for preset in PRESETS.values()}
    for memory in MEMORIES:
        if memory not in measured:
            found[memory] = memory, options_among(memory, SIZES)
    return found


def case_of(name: str, known: dict[str, tuple[str, dict[str, Any]]]) -> tuple[str, dict[str, Any]]:
    """A memory and its options: a known case, or module:Class with the `SIZES` that it has.

    Raises:
        UserError: for a name that is neither, or a module or class that does not exist.
    """
    if is_reference(name):
        kind = resolve(name)
        return name, options_among(kind, SIZES) if "input_size" in parameters_of(kind) else {}
    if name not in known:
        raise unknown_name("memory to measure", name, [*known, "module:Class"])
    return known[name]


def report(names: Sequence[str], plan: SpeedPlan, log: Callable[[str], None]) -> Measured:
    """Measures memories one after the other, and returns a table of all of them.

    Args:
        names: keys of `cases()`, or module:Class for memories of your own; all cases if empty.

    Raises:
        NothingMeasured: if a memory breaks a law; then nothing is reported.
        UserError: for an unknown name.
    """
    known = cases()
    chosen = {name: case_of(name, known) for name in names or known}
    figures = []
    for number, (name, case) in enumerate(chosen.items(), 1):
        log(f"measuring {name} ({number} of {len(chosen)})")
        try:
            figures.append(measure(name, *case, plan))
        except LawBroken as broken:
            raise NothingMeasured(f"{name} breaks a law\n{broken}") from None
    rates = sorted(f.product_rate for f in figures)
    machine = device() | {"product_rate": rates[len(rates) // 2]}
    data = {"machine": machine, "plan": plan, "figures": [f.as_data() for f in figures]}
    return Measured("bench", data, [table(figures, machine)])


def table(figures: Sequence[Figures], machine: dict[str, Any]) -> Table:
    """One row per memory."""
    rows = [
        [
            f.name,
            *(_rate(rate) for rate in (f.acting, f.learning, f.training)),
            f"{f.acting_fraction:.0%} / {f.learning_fraction:.0%} / {f.training_fraction:.0%}",
            f"{f.peak_bytes / 2**20:,.0f}",
            f"{f.compile_seconds:.1f}",
        ]
        for f in figures
    ]
    speed = products_text([machine["product_rate"]])
    title = f"{machine['device']}, {machine['cores']} cores, {speed}"
    columns = ("", "acting/s", "learning/s", "training/s", "of matmul peak", "peak MiB")
    return tabulate("bench", title, (*columns, "compile s"), rows, NOTE)


def _rate(rate: Estimate) -> str:
    spread = max(rate.high - rate.middle, rate.middle - rate.low) / rate.middle
    return f"{rate.middle:,.0f} ±{spread:.0%}"


def measure(name: str, memory: str, options: dict[str, Any], plan: SpeedPlan) -> Figures:
    """Checks the laws, then measures one memory in an agent on the T-Maze with corridor 120.

    Raises:
        LawBroken: if the memory breaks a law; then nothing is measured.
        UserError: for an unknown memory or option.
    """
    config = TrainConfig(
        env="tmaze",
        env_options={"corridor_length": 120},
        memory=memory,
        memory_options=options,
        a2c=A2CConfig(num_envs=plan.num_envs, rollout_length=plan.length),
        steps=plan.num_envs * plan.length,
    )
    parts = make_parts(config)
    state = jax.block_until_ready(init_run(parts))
    agent: Agent = eqx.combine(state.seed.agent, parts.static)
    cases = check(agent.memory, lengths=plan.law_lengths).cases
    before = matrix_product_rate(plan.repeats)
    seconds, peak, training, state = _training(parts, state, plan)
    acting, learning = _parts_rates(parts, state, plan)
    product = statistics.fmean([before, matrix_product_rate(plan.repeats)])
    work = multiply_adds(agent, parts.task.require_stream().observation_size).per_step
    return Figures(
        name=name,
        memory=memory,
        options=options,
        devices=parts.config.devices,
        parameters=parameters(agent),
        multiply_adds=work,
        acting=acting,
        learning=learning,
        training=training,
        peak_bytes=peak,
        compile_seconds=seconds,
        product_rate=product,
        acting_fraction=FORWARD * work * acting.middle / product,
        learning_fraction=FORWARD_AND_BACKWARD * work * learning.middle / product,
        training_fraction=(FORWARD + FORWARD_AND_BACKWARD) * work * training.middle / product,
        largest_deviation=max(max(case.value, case.gradient) for case in cases),
    )


def _parts_rates(parts: Parts, state: RunState, plan: SpeedPlan) -> tuple[Estimate, Estimate]:
    """Rates of acting alone and of learning alone, starting from a state of training.

    Windows are full there. At the beginning of an episode they are not, and cost less.
    """
    key, config, samples = jax.random.key(0), parts.config.a2c, plan.num_envs * plan.length
    arrays, sharding = state.seed.agent, parts.sharding

    def act(arrays: Any, actor: Any) -> Any:
        agent = eqx.combine(arrays, parts.static)
        return rollout(agent, parts.task.require_stream(), actor, plan.length, key)

    def learn(arrays: Any, trajectory: Any) -> Any:
        agent = eqx.combine(arrays, parts.static)
        return eqx.filter_value_and_grad(a2c_loss, has_aux=True)(agent, trajectory, config)

    options = {"compiler_options": sharding.compiler_options}
    act, learn = (jit_over(sharding.mesh, part, **options) for part in (act, learn))
    acting = rate_of(lambda: act(arrays, state.seed.actor), samples, plan.repeats)
    trajectory = act(arrays, state.seed.actor)[1]
    return acting, rate_of(lambda: learn(arrays, trajectory), samples, plan.repeats)


def _training(
    parts: Parts, state: RunState, plan: SpeedPlan
) -> tuple[float, int, Estimate, RunState]:
    """Compile seconds, memory and rate of the whole training program, and its last state."""
    with _no_compilation_cache():
        compiled: list[CompiledProgram] = []
        seconds = seconds_of(lambda: compiled.append(compile_program(parts)))
    program = compiled[0]
    held = [state]
    one = jnp.ones((), jnp.int32)

    def advance() -> Any:
        held[0] = program(held[0], one)  # the old state is used up
        return held[0]

    rate = rate_of(advance, plan.num_envs * plan.length, plan.repeats)
    return seconds, parts.config.devices * planned_bytes(program.compiled), rate, held[0]


@contextlib.contextmanager
def _no_compilation_cache() -> Iterator[None]:
    before = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
