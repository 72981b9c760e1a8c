"""The laws that every memory obeys, and `check`, which tests any memory against them.

A law says that two ways of computing the same thing agree, in values and in gradients with
respect to parameters, inputs and the initial state. `docs/laws.md` argues each law and the
tolerances.
"""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from clew.errors import UserError, one_line, require_at_least, require_choice
from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.laws.cases import CASES, CONTINUATION, PATTERNS, Cases, masked, poisoned
from clew.memory.laws.interface import check_interface, has_own_metrics
from clew.memory.laws.refresh import check_refresh
from clew.memory.laws.replay import check_replay
from clew.memory.laws.report import TOLERANCES, LawBroken, LawRecorder, LawReport, Precision
from clew.memory.laws.runs import Run, cast, learn, unroll


def check(
    memory: AbstractMemory,
    *,
    key: jax.Array | None = None,
    lengths: Sequence[int] = (1, 7, 64, 321),
    precision: Precision = "float32",
    value_tolerance: float | None = None,
    gradient_tolerance: float | None = None,
    raise_on_failure: bool = True,
) -> LawReport:
    """Tests a memory against every law, for every length and pattern of starts.

    Deviations are relative: |actual - expected| / max |expected| of the same array, with a floor
    that `docs/laws.md` states, and infinite where a number is not finite. States are compared by
    their effect: every run continues for some more observations.

    A law counts as broken only if two draws of the random numbers break it: about once in some
    hundred checks, rounding puts one number on the other side of a kink (relu) in one of two equal
    runs.

    Args:
        memory: the memory to check, of any class.
        key: random key for inputs, starts and cotangents; the default gives the same numbers every
            time.
        lengths: chunk lengths to unroll.
        precision: "float64" casts parameters, inputs and states, so that rounding does not matter;
            for memories that name no float dtype inside.
        value_tolerance: largest deviation allowed in outputs; `TOLERANCES` by default.
        gradient_tolerance: largest deviation allowed in gradients; `TOLERANCES` by default.
        raise_on_failure: if False, returns the report even if a law is broken.

    Raises:
        LawBroken: naming the first broken law, where it breaks and by how much.
        UserError: if this is not a memory, its state holds anything but numbers, or `lengths` is
            empty or holds anything but integers of at least 1.
    """
    if not isinstance(memory, AbstractMemory):
        raise UserError(
            f"the laws are checked on one memory with its weights: give an instance, such as "
            f"clew.make_memory(...), got {one_line(memory)}"
        )
    if isinstance(lengths, int):
        raise UserError(f"lengths must be several integers, such as ({lengths},), got {lengths}")
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
    with jax.enable_x64(precision == "float64"), jax.numpy_dtype_promotion("standard"):
        cases = Cases(cast(memory, precision), precision, sorted(set(lengths)), tolerances)
        report = _draw(cases, seed)
        if not report.passed and report.of("stream"):
            report = report.confirmed_by(_draw(cases, seed + 1))
    if raise_on_failure and not report.passed:
        others = [failure.law for failure in report.failures[1:]]
        also = f"; also broken: {', '.join(others)}" if others else ""
        raise LawBroken(f"{report.memory} breaks {report.failures[0]}{also}")
    return report


def _draw(cases: Cases, seed: int) -> LawReport:
    """Every law, for one draw of the random numbers."""
    memory, lengths = cases.memory, cases.lengths
    report = LawReport(type(memory).__name__)
    record = LawRecorder(report, cases.tolerances, memory.metric_names)
    if not check_interface(memory, cases.state, cases.dtype, record):
        return report
    cases.warm_up(seed)
    if has_own_metrics(memory):
        _check_metrics(cases, lengths[:2][-1], record)
    for length in lengths:
        _check_causal(cases, length, record)
        _check_reset(cases, length, record)
        _check_stream_and_split(cases, length, [n for n in lengths if n < length], record)
    check_refresh(cases, record)
    check_replay(cases, lengths[:2][-1], record)
    _check_batch(cases, lengths[:2][-1], record)
    return report


def _check_metrics(cases: Cases, length: int, record: LawRecorder) -> None:
    """Checks `unroll`; the other laws run `unroll_with_metrics` instead."""
    time = length + CONTINUATION
    xs, starts, weights = cases.draw(time)
    data = (cases.warm, xs, starts, cases.of_outputs(weights))
    tail = (scan_steps, CONTINUATION)
    expected = cases.run([(unroll, length), tail], *data)
    actual = _without_metrics(cases, cases.run([(learn, length), tail], *data))
    names = [f"a chunk of {length}, case {b}" for b in range(CASES)]
    plain = [(unroll, length), tail]
    near = [partial(cases.run, plain, cases.warm, x, *data[2:]) for x in cases.nudged(xs)]
    record.compare("metrics", length, names, actual, expected, near)


def _check_stream_and_split(
    cases: Cases, length: int, shorter: list[int], record: LawRecorder
) -> None:
    time = length + CONTINUATION
    starts, xs = cases.starts(time), cases.inputs(time)
    starts[[0, 1, 2, 4, 5, 6], :length] = False
    starts[2, 0] = starts[4, :length] = starts[5, length - 1] = starts[6, :length:2] = True
    xs[7, :length] *= 10
    xs[8, :length] *= 1000
    state = jax.tree.map(lambda f, w: np.concatenate([f[:1], w[1:]]), cases.fresh, cases.warm)
    weights = cases.weights(time)
    data, nudged = (state, xs, starts), cases.nudged(xs)
    tail = (scan_steps, CONTINUATION)
    pieces = [(learn, length), tail]
    whole = cases.run(pieces, *data, cases.of_outputs(weights))
    names = [f"a chunk of {length}, starts: {pattern}" for pattern in PATTERNS]
    steps = partial(cases.run, [(scan_steps, time)])
    of_outputs = cases.of_outputs(weights)
    stepped = steps(*data, of_outputs)
    near = [partial(steps, state, x, starts, of_outputs) for x in nudged]
    record.compare("stream", length, names, _without_metrics(cases, whole), stepped, near)
    lengths = _pieces(length, shorter)
    if len(lengths) > 1:
        if cases.memory.metric_names:
            whole = cases.run(pieces, *data, weights)
        split = cases.run([*((learn, n) for n in lengths), tail], *data, weights)
        names = [f"{name}, split into {_counted(lengths)}" for name in names]
        near = [partial(cases.run, pieces, state, x, starts, weights) for x in nudged]
        record.compare("split", length, names, split, whole, near)


def _without_metrics(cases: Cases, run: Run) -> Run:
    """A run whose metrics are zeros, as those of `step` and `unroll` are."""
    return run._replace(output=cases.of_outputs(run.output))


def _check_reset(cases: Cases, length: int, record: LawRecorder) -> None:
    places = (0, 0, 0, length // 2, length - 1, length // 4, 3 * length // 4, length // 3, 0)
    at = np.array(places)
    xs, starts, weights = cases.draw(length)
    time = np.arange(length)
    live = time >= at[:, None]
    starts = np.where(live, False, starts)
    starts[np.arange(CASES), at] = True
    weights = weights * live[..., None]
    poison = {"NaN": np.nan, "infinity": np.inf, "-1e30": -1e30}
    state = jax.tree.map(lambda a: poisoned(a, [*poison.values()]), cases.warm)
    # The same episodes from the fresh state, moved to the front: they need no start flag.
    order = (time + at[:, None]) % length
    rows = np.arange(CASES)[:, None]
    back = (time - at[:, None]) % length
    moved = [xs[rows, order], np.zeros_like(starts), weights[rows, order]]
    what = [*poison, *["another episode"] * (CASES - len(poison))]
    for name, run in (("unroll", learn), ("step", scan_steps)):
        fresh = cases.run([(run, length)], cases.fresh, *moved)
        fresh = _through_init_state(cases, fresh)
        fresh = fresh._replace(output=fresh.output[rows, back], inputs=fresh.inputs[rows, back])
        actual = cases.run([(run, length)], state, xs, starts, weights)
        names = [
            f"{name} over {length}, start at t={m} after {w}" for m, w in zip(at, what, strict=True)
        ]
        fresh, actual = masked(fresh, live, live), masked(actual, live, None)
        record.compare("reset", length, names, actual, fresh)


def _through_init_state(cases: Cases, run: Run) -> Run:
    """A run from `init_state()` whose gradient continues into the parameters behind that state."""
    if not jax.tree.leaves(run.state):
        return run
    more = cases.programs.pull_init_state(cases.memory, run.state)
    total = jax.tree.map(np.add, run.parameters, more)
    return run._replace(parameters=total, state=jax.tree.map(np.zeros_like, run.state))


def _check_causal(cases: Cases, length: int, record: LawRecorder) -> None:
    if length == 1:
        return
    last = np.arange(CASES) * (length - 2) // (CASES - 1)
    past = np.arange(length) <= last[:, None]
    xs, starts, weights = cases.draw(length)
    weights = weights * past[..., None]
    other_xs = np.where(past[..., None], xs, cases.inputs(length, size=10.0))
    other_starts = np.where(past, starts, ~starts)
    piece = [(learn, length)]
    expected = cases.run(piece, cases.warm, xs, starts, weights)
    actual = cases.run(piece, cases.warm, other_xs, other_starts, weights)
    names = [f"a chunk of {length}, everything after t={t} changed" for t in last]
    record.compare(
        "causal", length, names, masked(actual, past, None), masked(expected, past, past)
    )


def _check_batch(cases: Cases, length: int, record: LawRecorder) -> None:
    members = [jax.tree.map(lambda a, b=b: a[b], cases.warm) for b in range(CASES)]
    for run, time in ((learn, length), (scan_steps, cases.scan_length)):
        xs, starts, weights = cases.draw(time, 0.3)
        together = cases.run([(run, time)], cases.warm, xs, starts, weights)
        if run is learn:
            alone = partial(_learned_alone, cases, members, starts, weights)
        else:
            alone = partial(_stepped_alone, cases, members, starts, together)
        name = f"{'unroll' if run is learn else 'step'} over {time}"
        names = [f"{name}, member {b}" for b in range(CASES)]
        near = [partial(alone, x) for x in cases.nudged(xs)]
        record.compare("batch", time, names, together, alone(xs), near)


def _learned_alone(
    cases: Cases, members: list[State], starts: np.ndarray, weights: np.ndarray, xs: np.ndarray
) -> Run:
    """Chunks, one after the other."""
    data = zip(members, xs, starts, weights, strict=True)
    alone = [cases.programs.one_alone(cases.memory, *member) for member in data]
    return jax.tree.map(lambda *a: np.stack(a), *alone)


def _stepped_alone(
    cases: Cases, members: list[State], starts: np.ndarray, together: Run, xs: np.ndarray
) -> Run:
    """Steps, one member after the other, with the joint gradients of all.

    Acting is not differentiated, so only outputs are compared.
    """
    data = zip(members, xs, starts, strict=True)
    ys = [cases.programs.scan_one(cases.memory, *member)[1] for member in data]
    metrics = np.zeros((CASES, xs.shape[1], len(cases.memory.metric_names)), cases.dtype)
    return together._replace(output=np.concatenate([np.stack(ys), metrics], axis=-1))


def _pieces(length: int, shorter: list[int]) -> list[int]:
    """Cuts a chunk into lengths that are already compiled, long and short ones mixed."""
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
