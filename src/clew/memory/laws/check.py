"""The laws that every memory obeys, and `check`, which runs them on any memory.

A law says that two ways of computing the same thing agree, in values and in gradients with
respect to parameters, inputs and the initial state. `docs/laws.md` argues each law and the
tolerances.
"""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.errors import require_at_least, require_choice
from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.laws.cases import CASES, CONTINUATION, PATTERNS, Cases, Subject, masked, poisoned
from clew.memory.laws.report import (
    TOLERANCES,
    Book,
    Failure,
    LawBroken,
    LawCase,
    LawReport,
    Precision,
)
from clew.memory.laws.runs import (
    as_numpy,
    cast,
    one_alone,
    scan_one,
    through_init_state,
    unroll,
)


def check(
    memory: AbstractMemory,
    *,
    key: jax.Array | None = None,
    lengths: Sequence[int] = (1, 7, 63, 257),
    precision: Precision = "float32",
    value_tolerance: float | None = None,
    gradient_tolerance: float | None = None,
    raise_on_failure: bool = True,
) -> LawReport:
    """Runs every law on a memory, for every length and pattern of starts.

    Deviations are relative: |actual - expected| / (1 + max |expected|) of the same array, and
    infinite where a number is not finite. States are compared by what they do: every run goes
    on for some further observations.

    A law counts as broken if two draws of the random numbers break it: rounding may, once in some
    hundred checks, put one number on the other side of a kink (relu) in one of two equal runs.

    Args:
        memory: the memory to examine, of any class.
        key: randomness of inputs, starts and cotangents; the same numbers every time by default.
        lengths: chunk lengths to unroll.
        precision: "float64" runs the same functions with parameters, inputs and states cast, so
            that rounding is out of the way; for memories that name no float type inside.
        value_tolerance: largest deviation allowed in outputs; `TOLERANCES` by default.
        gradient_tolerance: largest deviation allowed in gradients; `TOLERANCES` by default.
        raise_on_failure: if False, the report is returned even if a law is broken.

    Raises:
        LawBroken: naming the first law broken, where and by how much.
        UserError: if `lengths` is empty or holds anything but integers of at least 1.
    """
    require_at_least("the number of lengths", len(lengths), 1)
    for length in lengths:
        require_at_least("a length", length, 1)
    require_choice("precision", precision, TOLERANCES)
    usual = TOLERANCES[precision]
    tolerances = (
        usual[0] if value_tolerance is None else value_tolerance,
        usual[1] if gradient_tolerance is None else gradient_tolerance,
    )
    seed = int(jax.random.bits(jax.random.key(0) if key is None else key))
    chunks = sorted(set(lengths))
    with jax.enable_x64(precision == "float64"), jax.numpy_dtype_promotion("standard"):
        subject = Subject(cast(memory, precision), precision, chunks, tolerances)
        report = _draw(subject, seed)
        if not report.passed and report.of("stream"):
            report = report.confirmed_by(_draw(subject, seed + 1))
    if raise_on_failure and not report.passed:
        others = [failure.law for failure in report.failures[1:]]
        also = f"; broken too: {', '.join(others)}" if others else ""
        raise LawBroken(f"{report.memory} breaks {report.failures[0]}{also}")
    return report


def _draw(subject: Subject, seed: int) -> LawReport:
    """Every law, for one draw of the random numbers."""
    book = Book(LawReport(type(subject.memory).__name__), *subject.tolerances)
    cases, lengths = Cases(subject, np.random.default_rng(seed)), subject.lengths
    if not _check_interface(cases.memory, cases.state, cases.dtype, book):
        return book.report
    cases.warm_up()
    for length in lengths:
        _check_causal(cases, length, book)
        _check_reset(cases, length, book)
        _check_stream_and_split(cases, length, [n for n in lengths if n < length], book)
    _check_refresh(cases, book)
    _check_batch(cases, lengths[:2][-1], book)
    return book.report


def _check_interface(memory: AbstractMemory, state: State, dtype: Any, book: Book) -> bool:
    """Whether `step` and `unroll` give what the interface promises; without running them."""
    xs, starts = jnp.zeros((2, memory.input_size), dtype), jnp.zeros(2, bool)
    runs = {
        "step": (1, (), eqx.filter_eval_shape(memory.step, state, xs[0], starts[0])),
        "unroll": (2, (2,), eqx.filter_eval_shape(memory.unroll, state, xs, starts)),
    }
    for name, (length, lead, (after, y)) in runs.items():
        expected, place = (*lead, memory.output_size), ""
        if y.shape != expected:
            place = f"the output has shape {list(y.shape)}, not {list(expected)},"
        elif _shapes(after) != _shapes(state):
            place = f"the state becomes {_shapes(after)}, not {_shapes(state)} as it began,"
        failure = Failure("interface", name, place, math.nan, 0.0) if place else None
        book.report.cases.append(LawCase("interface", length, name, 0.0, 0.0, failure))
    return book.report.passed


def _check_stream_and_split(cases: Cases, length: int, shorter: list[int], book: Book) -> None:
    time = length + CONTINUATION
    starts = cases.starts(time)
    starts[[0, 1, 2, 4], :length] = False
    starts[2, 0] = starts[4, :length] = True
    state = jax.tree.map(lambda f, w: np.concatenate([f[:1], w[1:]]), cases.fresh, cases.warm)
    data = (state, cases.inputs(time), starts, cases.weights(time))
    tail = (scan_steps, CONTINUATION)
    whole = cases.run([(unroll, length), tail], *data)
    names = [f"a chunk of {length}, starts: {pattern}" for pattern in PATTERNS]
    book.compare("stream", length, names, whole, cases.run([(scan_steps, time)], *data))
    pieces = _pieces(length, shorter)
    if len(pieces) > 1:
        split = cases.run([*((unroll, n) for n in pieces), tail], *data)
        names = [f"{name}, split into {_counted(pieces)}" for name in names]
        book.compare("split", length, names, split, whole)


def _check_reset(cases: Cases, length: int, book: Book) -> None:
    at = np.array([0, 0, 0, length // 2, length - 1])
    xs, starts, weights = cases.inputs(length), cases.starts(length), cases.weights(length)
    time = np.arange(length)
    live = time >= at[:, None]
    starts = np.where(live, False, starts)
    starts[np.arange(CASES), at] = True
    weights = weights * live[..., None]
    poison = [np.nan, np.inf, -1e30]
    state = jax.tree.map(lambda a: poisoned(a, poison), cases.warm)
    # The same episodes from the fresh state, no start flag needed: moved to the front.
    order = (time + at[:, None]) % length
    rows = np.arange(CASES)[:, None]
    back = (time - at[:, None]) % length
    moved = [xs[rows, order], np.zeros_like(starts), weights[rows, order]]
    what = ["NaN", "infinity", "-1e30", "another episode", "another episode"]
    for name, run in (("unroll", unroll), ("step", scan_steps)):
        fresh = cases.run([(run, length)], cases.fresh, *moved)
        fresh = through_init_state(cases.memory, fresh)
        fresh = fresh._replace(output=fresh.output[rows, back], inputs=fresh.inputs[rows, back])
        actual = cases.run([(run, length)], state, xs, starts, weights)
        names = [
            f"{name} over {length}, start at t={m} after {w}" for m, w in zip(at, what, strict=True)
        ]
        fresh, actual = masked(fresh, live, live), masked(actual, live, None)
        book.compare("reset", length, names, actual, fresh)


def _check_causal(cases: Cases, length: int, book: Book) -> None:
    if length == 1:
        return
    last = np.array([0, length // 4, length // 2, 3 * length // 4, length - 2])
    past = np.arange(length) <= last[:, None]
    xs, starts, weights = cases.inputs(length), cases.starts(length), cases.weights(length)
    weights = weights * past[..., None]
    other_xs = np.where(past[..., None], xs, cases.inputs(length, size=10.0))
    other_starts = np.where(past, starts, ~starts)
    piece = [(unroll, length)]
    expected = cases.run(piece, cases.warm, xs, starts, weights)
    actual = cases.run(piece, cases.warm, other_xs, other_starts, weights)
    names = [f"a chunk of {length}, everything after t={t} changed" for t in last]
    book.compare("causal", length, names, masked(actual, past, None), masked(expected, past, past))


def _check_refresh(cases: Cases, book: Book) -> None:
    time = cases.scan_length
    data = (cases.inputs(time), cases.starts(time), cases.weights(time))
    members = [jax.tree.map(lambda a, b=b: jnp.asarray(a[b]), cases.warm) for b in range(CASES)]
    refreshed = [as_numpy(cases.memory.refresh(member)) for member in members]
    state = jax.tree.map(lambda *a: np.stack(a), *refreshed)
    piece = [(scan_steps, time)]
    actual = cases.run(piece, state, *data)
    names = [f"{time} steps from a refreshed state, member {b}" for b in range(CASES)]
    book.compare("refresh", time, names, actual, cases.run(piece, cases.warm, *data))


def _check_batch(cases: Cases, length: int, book: Book) -> None:
    for run, time in ((unroll, length), (scan_steps, cases.scan_length)):
        xs, starts, weights = cases.inputs(time), cases.starts(time, 0.3), cases.weights(time)
        together = cases.run([(run, time)], cases.warm, xs, starts, weights)
        members = [jax.tree.map(lambda a, b=b: a[b], cases.warm) for b in range(CASES)]
        if run is unroll:
            data = zip(members, xs, starts, weights, strict=True)
            alone = [one_alone(cases.memory, *member) for member in data]
            expected = jax.tree.map(lambda *a: np.stack(a), *alone)
        else:
            # Nobody differentiates acting: outputs are compared, and the gradients are taken over.
            data = zip(members, xs, starts, strict=True)
            ys = [scan_one(cases.memory, *member)[1] for member in data]
            expected = together._replace(output=np.stack(ys))
        name = f"{'unroll' if run is unroll else 'step'} over {time}"
        names = [f"{name}, member {b}" for b in range(CASES)]
        book.compare("batch", time, names, together, expected)


def _pieces(length: int, shorter: list[int]) -> list[int]:
    """A cut of a chunk into lengths that are compiled already, long and short ones mixed."""
    if not shorter:
        return [length // 2, length - length // 2] if length > 1 else [length]
    pieces, rest = [], length
    for n in sorted(shorter, reverse=True):
        pieces += [n] * (rest // n)
        rest %= n
    pieces += [rest] if rest else []
    return pieces[::2] + pieces[1::2]


def _counted(pieces: list[int]) -> str:
    return " + ".join(f"{pieces.count(n)} x {n}" for n in sorted(set(pieces), reverse=True))


def _shapes(state: State) -> str:
    def one(array: Any) -> str:
        return f"{jnp.result_type(array).name}{list(jnp.shape(array))}"

    return str(jax.tree.map(one, state))
