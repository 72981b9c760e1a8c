"""How the time and memory of learning grow with the length of a chunk.

    python -m benchmarks.lengths --output results/lengths
    python -m benchmarks.lengths --every --lengths 256 1024 8192 --output results/lengths-of-all

For memories whose state does not grow with time, one layer each at the sizes of Pramanik (2023),
Table A.2, it measures the gradient of `unroll`, compiled for chunks of several lengths: of ReLiT
and AReLiT in every form of computing a chunk; with `--every` of all others too, in their default
form.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from benchmarks import measured
from matplotlib.ticker import NullFormatter

from clew.cli.tables import log as log_to_stderr
from clew.errors import require_at_least, unknown_name
from clew.lab.bench.machine import call_seconds, device, matrix_product_rate, products_text
from clew.lab.bench.timing import Estimate, estimate, ratio
from clew.memory import MEMORIES, AbstractMemory, make_memory, options_among, scan_steps
from clew.memory import options_of as known_options
from clew.memory.arelit import ApproximateLinearAttention
from clew.memory.kernels import Form, choose_form, why_not
from clew.memory.mlstm import MLSTMMixer
from clew.memory.parts.matrix_mixer import MatrixMixer
from clew.memory.parts.matrix_recurrence import choose_matrix_form
from clew.memory.parts.stack import LayerStack
from clew.memory.relit import GatedLinearAttention
from clew.memory.rwkv7 import RWKV7Mixer
from clew.report.document import Measured, Table, tabulate
from clew.report.figures import new_figure, number_log_axis, save, styles_of
from clew.run.machine import planned_bytes

SIZES = {"hidden_size": 128, "num_layers": 1, "num_heads": 4, "head_size": 64}
FORMS: dict[str, tuple[Form, ...]] = {
    "relit": get_args(Form),
    "arelit": get_args(Form),
    "linear_transformer": (),
}
"""The memories, and the values of their option `backend`."""
OTHERS = tuple(
    name
    for name in MEMORIES
    if name not in (*FORMS, "none", "hybrid") and "window" not in known_options(name)
)
"""The other memories whose state has a constant size."""
NAMES = (*FORMS, *OTHERS)
INPUT_SIZE = 16
PIECE = 16  # kPiece in kernels/native/groups.h: a kernel keeps one state for this many steps
ROWS = 4  # kRows in kernels/native/groups.h


class LengthsPlan(NamedTuple):
    """How much to measure."""

    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192)
    envs: int = 2
    rounds: int = 6
    sizes: dict[str, int] = SIZES
    memories: tuple[str, ...] = tuple(FORMS)


NOTE = (
    "us: microseconds per observation of one environment, forward and backward, with a 95% "
    "interval. relative: to the same at the shortest length, turn by turn. MiB: peak memory as "
    "planned by XLA + what the kernel allocates. states kept: XLA's plan for a gradient that keeps "
    "the states and products of every step; in brackets: the states alone. ratio: of this plan to "
    "the peak memory."
)

QUICK = LengthsPlan(
    (16, 32), 1, 2, {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "head_size": 8}
)
"""Enough to see that everything works; not to quote."""
QUICK_NOTE = "QUICK: short chunks and two turns; do not quote these figures"


def check_names(names: Sequence[str]) -> None:
    """Refuses a memory that is not among those to measure.

    Raises:
        UserError: with the nearest one.
    """
    for name in names:
        if name not in NAMES:
            raise unknown_name("memory to measure", name, NAMES)


def chosen(given: argparse.Namespace, plan: LengthsPlan, quick: LengthsPlan) -> LengthsPlan:
    """The plan that the options ask for: a predefined one, with the memories and lengths they name.

    Raises:
        UserError: for a name that is not among those to measure, or a length below 1.
    """
    check_names(given.memories)
    for length in given.lengths:
        require_at_least("lengths", length, 1)
    plan = quick if given.quick else plan._replace(rounds=given.repeats)
    memories = tuple(given.memories) or plan.memories
    return plan._replace(memories=memories, lengths=tuple(given.lengths) or plan.lengths)


class Row(NamedTuple):
    """One memory in one form at one length."""

    memory: str
    """with its form, for example `relit, kernel`"""
    length: int
    envs: int
    microseconds: Estimate
    """for one observation of one environment, forward and backward"""
    times_shortest: Estimate
    """relative to the same at the shortest length, turn by turn: 1 if nothing grows"""
    planned_bytes: int
    """XLA's plan of the program: arguments, results and everything between"""
    kernel_bytes: int
    """memory that the kernel allocates besides, by formula; 0 where none runs"""
    kept_bytes: int
    """XLA's plan of the gradient of `step` in a scan, which keeps what it needs of every step"""
    state_bytes: int
    """the states after every step alone"""


def report(plan: LengthsPlan, repeats: int, log: Callable[[str], None]) -> Measured:
    """Measures all memories at all lengths.

    The machine's rate of products is measured before and after, with this many repeats.
    """
    machine = device()
    before = matrix_product_rate(repeats)
    rows = measure(plan, machine["cores"] or 1, log)
    machine["product_rates"] = [before, matrix_product_rate(repeats)]
    return document(machine, plan, rows)


def document(machine: Mapping[str, Any], plan: LengthsPlan, rows: Sequence[Row]) -> Measured:
    """The measurements, as `lengths.json`, `lengths.md` and `lengths.png`."""
    found = table(rows, machine)
    return Measured(
        "lengths",
        {"machine": machine, "plan": plan, "rows": rows},
        [found],
        pictures={"lengths.png": partial(draw, rows, title=found.title)},
    )


def table(rows: Sequence[Row], machine: Mapping[str, Any]) -> Table:
    """One row for each memory, form and length."""
    lines = [
        [
            row.memory,
            f"{row.length:,}",
            f"{row.microseconds:.1f}",
            f"{row.times_shortest:.2f}",
            f"{row.planned_bytes / 2**20:,.1f} + {row.kernel_bytes / 2**20:,.1f}",
            f"{row.kept_bytes / 2**20:,.1f} ({row.state_bytes / 2**20:,.1f})",
            f"{row.kept_bytes / (row.planned_bytes + row.kernel_bytes):.1f}",
        ]
        for row in rows
    ]
    title = (
        f"Learning from chunks of {rows[0].envs} environments; {machine['cores']} cores, "
        f"{products_text(machine['product_rates'])}"
    )
    columns = ("", "steps", "us", "relative", "MiB", "states kept, MiB", "ratio")
    return tabulate("lengths", title, columns, lines, NOTE)


Gradient = Callable[[AbstractMemory, Any, Any, Any], tuple[Any, Any]]


def unrolled(memory: AbstractMemory, *args: Any) -> tuple[Any, Any]:
    """The chunk as the memory reads it."""
    return memory.unroll(*args)


def compile_gradient(memory: AbstractMemory, length: int, envs: int, read: Gradient) -> Any:
    """The gradient of the sum of outputs, for parameters and observations.

    `read` takes (memory, state, xs, starts) to a state and outputs, without a batch axis.
    """
    params, static = eqx.partition(memory, eqx.is_inexact_array)
    one = memory.init_state()
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (envs, *jnp.shape(x))), one)

    def total(params: Any, xs: Any, starts: Any) -> Any:
        whole = eqx.combine(params, static)
        batched = jax.vmap(lambda *args: read(whole, *args), in_axes=(0, 1, 1), out_axes=(0, 1))
        return jnp.sum(batched(states, xs, starts)[1])

    xs = jax.ShapeDtypeStruct((length, envs, memory.input_size), jnp.float32)
    starts = jax.ShapeDtypeStruct((length, envs), jnp.bool_)
    return jax.jit(jax.grad(total, argnums=(0, 1))).lower(params, xs, starts).compile()


def kernel_bytes(memory: AbstractMemory, length: int, envs: int, threads: int) -> int:
    """An upper bound on the memory that a compiled kernel allocates in its backward pass.

    For each head that is processed at the same time, at most one per thread: one state for every
    `PIECE` steps, one gradient, and the states of one piece, `ROWS` rows of a matrix and ReLiT's
    normaliser. These are the kernels' arrays that grow, and the largest ones.
    """
    attention = memory.layers[0].attention if isinstance(memory, LayerStack) else None
    if isinstance(attention, MatrixMixer | MLSTMMixer | RWKV7Mixer):
        if choose_matrix_form(attention.backend) != "kernel":
            return 0
        heads, value, key = next(
            x.shape for x in jax.tree.leaves(attention.init_state()) if x.ndim == 3
        )
        steps = attention.steps_per_input if isinstance(attention, MatrixMixer) else 1
        held = (-(-length * steps // PIECE) + 1) * value * key + (PIECE + 1) * ROWS * key
        return 4 * held * min(threads, heads * envs)
    recurrent = isinstance(attention, GatedLinearAttention | ApproximateLinearAttention)
    if not recurrent or choose_form(attention.backend) != "kernel":
        return 0
    features = attention.features
    wide, heads = features.eta * features.head_size, features.num_heads
    floats = sum(x.size for x in jax.tree.leaves(memory.init_state()[0]) if x.ndim > 1)
    state = floats // heads
    pieces = -(-length // PIECE)
    if isinstance(attention, GatedLinearAttention):
        held = (pieces + 1) * state + (PIECE + 1) * (ROWS + 1) * wide
    else:
        held = (pieces + PIECE + 3) * state
    return 4 * held * min(threads, heads * envs)


def measure(plan: LengthsPlan, threads: int, log: Callable[[str], None]) -> list[Row]:
    """All memories in all forms at all lengths, by turns."""
    compiled, calls = {}, {}
    for subject, length in ((s, length) for s in subjects(plan) for length in plan.lengths):
        memory = subject.memory
        log(f"compiling {subject.label}, chunks of {length:,}")
        program = compile_gradient(memory, length, plan.envs, unrolled)
        compiled[subject.label, length] = subject, program
        calls[subject.label, length] = call_of(memory, program, length, plan.envs)
    seconds = {
        point: [took / (point[1] * plan.envs) for took in each]
        for point, each in call_seconds(calls, plan.rounds, log).items()
    }
    kept: dict[tuple[str, int], int] = {}  # the same for every form, since `step` has only one
    rows = []
    for (label, length), (subject, program) in compiled.items():
        name, memory = subject.name, subject.memory
        took, shortest = seconds[label, length], seconds[label, plan.lengths[0]]
        if (name, length) not in kept:
            whole = compile_gradient(memory, length, plan.envs, scan_steps)
            kept[name, length] = planned_bytes(whole)
        floats = sum(x.size for x in jax.tree.leaves(memory.init_state()))
        rows.append(
            Row(
                label,
                length,
                plan.envs,
                estimate([1e6 * s for s in took]),
                ratio(took, shortest),
                planned_bytes(program),
                kernel_bytes(memory, length, plan.envs, threads),
                kept[name, length],
                4 * floats * length * plan.envs,
            )
        )
    return rows


class Subject(NamedTuple):
    """A memory in one of its forms."""

    name: str
    memory: AbstractMemory
    label: str


def subjects(plan: LengthsPlan) -> Iterator[Subject]:
    """The plan's memories, in every form that this machine has."""

    def make(name: str, **form: str) -> AbstractMemory:
        sizes = options_among(name, plan.sizes)
        return make_memory(name, input_size=INPUT_SIZE, key=jax.random.key(0), **sizes, **form)

    for name in plan.memories:
        forms = FORMS.get(name, ())
        for form in forms:
            if form == "kernel" and why_not():
                continue
            yield Subject(name, make(name, backend=form), f"{name}, {form}")
        if not forms:
            yield Subject(name, make(name), name)


def call_of(memory: AbstractMemory, program: Any, length: int, envs: int) -> Callable[[], Any]:
    """A call of a compiled gradient on observations sampled once, in a running episode."""
    params, _ = eqx.partition(memory, eqx.is_inexact_array)
    xs = jax.random.normal(jax.random.key(1), (length, envs, memory.input_size))
    starts = jnp.zeros((length, envs), bool)
    return lambda: program(params, xs, starts)


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    """Time and memory against the length of chunks, as a PNG."""
    styles, lengths = styles_of(row.memory for row in rows), sorted({row.length for row in rows})
    columns = 3 if len(styles) < 12 else 6
    figure = new_figure(12, 3.2 + 0.1 * len(styles) + 0.27 * len(styles) / columns)
    left, right = figure.subplots(1, 2)
    for label, style in styles.items():
        mine = [row for row in rows if row.memory == label]
        times = [row.microseconds for row in mine]
        look: dict[str, Any] = {
            "color": style.colour,
            "marker": style.marker,
            "linestyle": style.dash,
        }
        left.plot(lengths, [t.middle for t in times], **look, label=label)
        low, high = [t.low for t in times], [t.high for t in times]
        left.fill_between(lengths, low, high, color=style.colour, alpha=0.2, linewidth=0)
        held = [(row.planned_bytes + row.kernel_bytes) / 2**20 for row in mine]
        right.plot(lengths, held, **look)
        kept = [row.kept_bytes / 2**20 for row in mine]
        right.plot(lengths, kept, ":", color=style.colour)
    left.set_title("Microseconds per observation, forward and backward", loc="left", fontsize=11)
    right.set_title("Peak memory (MiB); dotted: with every state kept", loc="left", fontsize=11)
    for axes in (left, right):
        axes.set_yscale("log")
        number_log_axis(axes.yaxis)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("chunk length (steps)")
        axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=columns, frameon=False)
    figure.suptitle(title)
    save(figure, path)


def chunk_options(about: str | None) -> argparse.ArgumentParser:
    """The command line's options for chunks."""
    found = measured.parser(about, repeats=6)
    found.add_argument("--lengths", nargs="+", type=int, default=[], help="of chunks, in steps")
    return found


def options_of() -> argparse.ArgumentParser:
    """The command line's options."""
    found = chunk_options(__doc__)
    found.add_argument(
        "--every", action="store_const", dest="memories", const=NAMES, help="measure all memories"
    )
    return found


def plan_of(given: argparse.Namespace) -> LengthsPlan:
    """The plan that the options ask for."""
    return chosen(given, LengthsPlan(), QUICK)


def main(args: Sequence[str] | None = None) -> int:
    """Measures, prints and writes."""
    return measured.run(
        options_of(),
        args,
        lambda given: report(plan_of(given), 1 if given.quick else 5, log_to_stderr),
        lambda folder: measured.redrawn(document, folder, "lengths", Row, LengthsPlan),
        QUICK_NOTE,
    )


if __name__ == "__main__":
    sys.exit(main())
