"""How fast each memory acts, learns and trains, held against the machine's own matrix products.

Everything is measured on the programs that training runs, at the sizes of Pramanik (2023),
Table A.2. `measure` refuses a memory that breaks a law: a wrong model's speed is no figure.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.agents.learners.a2c import A2CConfig, a2c_loss
from clew.agents.network import Agent
from clew.interact.rollout import rollout
from clew.lab.costs import multiply_adds, parameters
from clew.lab.studies.tmaze.grid import PRESETS
from clew.memory import MEMORIES, options_of
from clew.memory.laws import check
from clew.run.compiled import Parts, RunState, compile_program, init_run, make_parts
from clew.run.config import TrainConfig

SIZES = {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "head_size": 64, "window": 128}
"""Table A.2's, for memories that the thesis did not train on the T-Maze."""

PRODUCT_SIZE = 2048
FORWARD, FORWARD_AND_BACKWARD = 2, 6
"""Floating-point operations for one multiply-add: two forward, and twice that again backward."""


class Rate(NamedTuple):
    """Something per second: the median of the repeats and the slowest and fastest of them."""

    median: float
    low: float
    high: float


class Plan(NamedTuple):
    """How much to measure."""

    num_envs: int = 8
    """environments side by side"""
    length: int = 256
    """steps of every environment in one rollout"""
    repeats: int = 5
    """timed calls of every program, after one that is not timed"""
    law_lengths: tuple[int, ...] = (1, 7)
    """chunk lengths at which the laws are run first"""


QUICK = Plan(length=32, repeats=2, law_lengths=(3,))
"""Enough to see that everything works; its rates are no figures to quote."""


class Figures(NamedTuple):
    """What was measured of one memory."""

    name: str
    memory: str
    options: dict[str, Any]
    parameters: int
    """of the whole agent"""
    multiply_adds: int
    """of the whole agent, in one step of one environment"""
    acting: Rate
    """environment steps per second of a rollout: memory, heads, sampling, environment"""
    learning: Rate
    """samples per second: value and gradient of the A2C loss on one rollout"""
    training: Rate
    """environment steps per second of the compiled training program, acting and learning"""
    peak_bytes: int
    """of arrays that the training program holds at once, as XLA has planned them"""
    compile_seconds: float
    """to trace and compile the training program, with no cache"""
    product_rate: float
    """floating-point operations per second of this machine's matrix product, before and after"""
    acting_fraction: float
    learning_fraction: float
    training_fraction: float
    """of the product rate: useful operations, 2 per multiply-add forward and 6 with backward"""
    largest_deviation: float
    """of the laws run first"""


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """What there is to measure: a name to a memory and its options.

    The agents of Pramanik's T-Maze study, and at the same width and depth every other memory.
    """
    found = {
        name.removeprefix("pramanik/"): (preset.memory, preset.memory_options)
        for name, preset in PRESETS.items()
    }
    measured = {memory for memory, _ in found.values()}
    for memory in MEMORIES:
        if memory not in measured:
            valid = options_of(memory)
            found[memory] = memory, {n: v for n, v in SIZES.items() if n in valid}
    return found


def measure(name: str, memory: str, options: dict[str, Any], plan: Plan) -> Figures:
    """Runs the laws, then measures one memory in an agent on the T-Maze with corridor 120.

    Raises:
        LawBroken: if the memory breaks a law; nothing is measured then.
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
    config.validate()
    parts = make_parts(config)
    state = jax.block_until_ready(init_run(parts))
    agent: Agent = eqx.combine(state.seed.agent, parts.static)
    deviation = _largest_deviation(agent, plan)
    before = matrix_product_rate(plan.repeats)
    seconds, peak, training, state = _training(parts, state, plan)
    acting, learning = _parts_rates(eqx.combine(state.seed.agent, parts.static), parts, state, plan)
    product = statistics.fmean([before, matrix_product_rate(plan.repeats)])
    work = multiply_adds(agent, parts.jax_stream.observation_size).per_step
    return Figures(
        name=name,
        memory=memory,
        options=options,
        parameters=parameters(agent),
        multiply_adds=work,
        acting=acting,
        learning=learning,
        training=training,
        peak_bytes=peak,
        compile_seconds=seconds,
        product_rate=product,
        acting_fraction=FORWARD * work * acting.median / product,
        learning_fraction=FORWARD_AND_BACKWARD * work * learning.median / product,
        training_fraction=(FORWARD + FORWARD_AND_BACKWARD) * work * training.median / product,
        largest_deviation=deviation,
    )


def matrix_product_rate(repeats: int = 5) -> float:
    """Floating-point operations per second of square float32 products of size 2048, the median.

    The products run at JAX's default precision, as the models' own do; on a GPU that may be
    less than float32.
    """
    size, count = PRODUCT_SIZE, 4
    a = jax.random.normal(jax.random.key(0), (size, size)) / size**0.5

    @jax.jit
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(count):
            x = x @ a
        return x

    return repeated(lambda: chain(a), count * 2 * size**3, repeats).median


def repeated(call: Callable[[], Any], amount: float, repeats: int) -> Rate:
    """`amount` per second of a call, over `repeats` calls after one that is not timed."""
    jax.block_until_ready(call())
    rates = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        rates.append(amount / (time.perf_counter() - begin))
    return Rate(statistics.median(rates), min(rates), max(rates))


def _largest_deviation(agent: Agent, plan: Plan) -> float:
    report = check(agent.memory, lengths=plan.law_lengths)
    return max(max(case.value, case.gradient) for case in report.cases)


def _parts_rates(agent: Agent, parts: Parts, state: RunState, plan: Plan) -> tuple[Rate, Rate]:
    """Rates of acting alone and of learning alone, from where training stands.

    Windows are full there. At the beginning of an episode they are not, and cost less.
    """
    key, config, samples = jax.random.key(0), parts.config.a2c, plan.num_envs * plan.length

    @eqx.filter_jit
    def act(agent: Agent) -> Any:
        return rollout(agent, parts.jax_stream, state.seed.actor, plan.length, key)

    @eqx.filter_jit
    def learn(agent: Agent, trajectory: Any) -> Any:
        return eqx.filter_value_and_grad(a2c_loss, has_aux=True)(agent, trajectory, config)

    acting = repeated(lambda: act(agent), samples, plan.repeats)
    trajectory = act(agent)[1]
    return acting, repeated(lambda: learn(agent, trajectory), samples, plan.repeats)


def _training(parts: Parts, state: RunState, plan: Plan) -> tuple[float, int, Rate, RunState]:
    """Seconds to compile, bytes held and rate of the whole training program, and its last state."""
    with _no_compilation_cache():
        begin = time.perf_counter()
        program = compile_program(parts)
        seconds = time.perf_counter() - begin
    held = [state]
    one = jnp.ones((), jnp.int32)

    def advance() -> Any:
        held[0] = program(held[0], one)  # the old state is used up
        return held[0]

    rate = repeated(advance, plan.num_envs * plan.length, plan.repeats)
    return seconds, planned_bytes(program), rate, held[0]


def planned_bytes(compiled: Any) -> int:
    """Bytes that a compiled program holds at once: arguments, results and everything between.

    This is XLA's own plan of its buffers, exact for the program. The process itself needs more:
    Python, the libraries and the compiler, some hundred MB that no memory model is to blame for
    and that a process's highest resident size would mix in.
    """
    plan = compiled.memory_analysis()
    whole = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return whole - plan.alias_size_in_bytes


@contextlib.contextmanager
def _no_compilation_cache() -> Iterator[None]:
    before = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
