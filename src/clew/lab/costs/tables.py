"""The tables of costs: of memories, of the attention of one layer, and of published claims."""

from collections.abc import Mapping, Sequence

from clew.lab.costs.account import FLOPS, Account
from clew.lab.costs.claims import WHOLE_MEMORY, Claim, Pair, ours, verdict
from clew.lab.costs.compiled import Compiled, Time
from clew.lab.costs.subjects import PARISOTTO, Setting, attention_formula
from clew.lab.costs.terms import SYMBOLS, Formula, Term
from clew.lab.document import UNKNOWN, Grid


def memories_table(accounts: Sequence[Account], title: str) -> Grid:
    """One row a memory: sizes and arithmetic, and what was compiled and measured."""
    columns = ["", "parameters", "state floats", "state bytes", "multiply-adds", "per batch"]
    compiled = any(a.compiled_step for a in accounts)
    measured = any(a.acting for a in accounts)
    rows = []
    for a in accounts:
        row = [a.name, _number(a.parameters), _number(a.state.floats), _number(a.state.bytes)]
        row += [_number(a.step.per_step), _number(a.step.shared)]
        if compiled:
            row += _compiled(a.compiled_step) + _compiled(a.compiled_unroll)
        if measured:
            row += [_time(a.acting), _time(a.reading)]
        rows.append(row)
    if compiled:
        columns += ["XLA step FLOP", "XLA step bytes", "XLA chunk FLOP", "XLA chunk bytes"]
    if measured:
        columns += ["acting us", "chunk us"]
    note = (
        "Per observation of one environment. Multiply-adds of a step, by formula and counted from "
        "the program alike; those 'per batch' depend on parameters alone and are paid once a batch."
    )
    if compiled:
        note += " ~: the program loops, and XLA counts a loop's body once."
    return Grid(title, tuple(columns), rows, note)


def terms_table(name: str, formula: Formula) -> Grid:
    """A memory's formula, term by term, the largest first; then its state."""
    order = ("products", "elementwise", "shared", "floats", "integers")
    terms = sorted(
        (t for t in formula.terms if t.value(formula.sizes)),
        key=lambda t: (order.index(t.kind), -t.value(formula.sizes)),
    )
    rows = [[t.what, str(t), _number(t.value(formula.sizes)), t.kind] for t in terms]
    return Grid(name, ("", "term", "number", "kind"), rows)


def attention_table(setting: Setting, accounts: Sequence[Account]) -> Grid:
    """The attention of one layer at the sizes of a published figure, all heads."""
    columns = ["one layer's attention", "state floats", "state bytes", "FLOP counted"]
    columns += ["per batch", "XLA step FLOP", "XLA step bytes", "acting us", "chunk us"]
    rows = []
    for a in accounts:
        row = [a.name, _number(a.state.floats), _number(a.state.bytes)]
        row += [_number(FLOPS * a.step.per_step), _number(FLOPS * a.step.shared)]
        rows.append([*row, *_compiled(a.compiled_step), _time(a.acting), _time(a.reading)])
    title = (
        f"{setting.name}: d = {setting.hidden_size}, {setting.num_heads} heads of "
        f"{setting.head_size}, M = {setting.window}, eta = {setting.eta}, r = {setting.r}"
    )
    note = (
        "Per observation of one environment. 'Per batch': GTrXL's projection of its distances, "
        "which depends on parameters alone. A single step makes it once for its whole batch, so it "
        "is in XLA's FLOP; in a rollout the compiler takes it out of the loop. Times: median and "
        "its 95% interval. ~: the program loops, and XLA counts a loop's body once."
    )
    return Grid(title, tuple(columns), rows, note)


def claims_table(
    claims: Sequence[Claim], accounts: Mapping[str, Mapping[str, Account]]
) -> tuple[Grid, Grid]:
    """Every published number on costs: by the thesis's rule, and by ours.

    Args:
        claims: what was published.
        accounts: by the name of the setting, then by that of the attention.
    """
    by_thesis, by_us = [], []
    for claim in claims:
        found = ours(claim, accounts[claim.setting.name])
        what = f"{claim.what} ({claim.source})"
        said = "yes" if claim.reproduced else "no"
        by_thesis.append([what, claim.published, _figure(claim.by_thesis), said, claim.note])
        pairs = (found.counted, found.compiled, found.measured)
        said = verdict(claim, found.counted)
        by_us.append([what, claim.published, *map(_pair, pairs), said])
    first = Grid(
        "Published figures by the thesis's own convention",
        ("", "published", "by its convention", "the printed digits", "how"),
        by_thesis,
    )
    second = Grid(
        "The same for a whole layer: operations 2 a multiply-add, state as held",
        ("", "published", "counted", "XLA", "measured", "as counted"),
        by_us,
        "'faster' and 'less space' are ratios, the others one head's share of its layer. Pairs are "
        "with a GTrXL that projects its whole memory at every step / with its key/value cache. "
        "XLA: FLOP of a compiled step, of state bytes. Measured: microseconds of acting.",
    )
    return first, second


def orders_table() -> Grid:
    """Tables 3.1 and 4.1: the published orders, and the terms that they stand for."""
    published = {
        WHOLE_MEMORY: ("O(M d)", "O(M d^2)", "O(L M)"),
        "gtrxl": ("O(M d)", "O(M d^2)", "O(L M)"),
        "linear_transformer": ("O(d_k d)", "O(d_k d)", "unbounded"),
        "relit": ("O(eta d^2)", "O(eta d^2)", "unbounded"),
        "arelit": ("O(r eta d)", "O(d^2 + r eta d)", "unbounded"),
    }
    rows = []
    for name, (space, work, context) in published.items():
        whole = name == WHOLE_MEMORY
        found = attention_formula("gtrxl" if whole else name, PARISOTTO, reproject=whole)
        state = [t for t in found.terms if t.kind == "floats"]
        products = [t for t in found.terms if t.kind == "products"]
        largest = max(t.value(found.sizes) for t in products)
        leading = [t for t in products if t.value(found.sizes) > 0.02 * largest]
        others = [t for t in found.terms if t.kind == "elementwise"]
        leading += [t for t in others if t.value(found.sizes) > 0.02 * largest]
        rows.append([name, space, _sum(state, found.sizes), work, _sum(leading, found.sizes)])
        rows[-1].append(context)
    columns = ("", "space published", "state floats of a layer", "time published")
    letters = "; ".join(f"{k}: {SYMBOLS[k]}" for k in ("S", "H", "d_h", "V", "K"))
    return Grid(
        "Tables 3.1 and 4.1: orders with d_h = d, and the terms",
        (*columns, "multiply-adds of a layer's step", "context published"),
        rows,
        f"Terms above 2% of the largest at M = 512, d = 256, largest first. {letters}.",
    )


def _sum(terms: Sequence[Term], sizes: dict[str, int]) -> str:
    """Terms of equal sizes together, the largest first."""
    factors: dict[tuple[str, ...], int] = {}
    for t in terms:
        key = tuple(sorted(t.sizes, key=list(SYMBOLS).index))
        factors[key] = factors.get(key, 0) + t.factor
    merged = [Term("products", "", factor, key) for key, factor in factors.items()]
    return " + ".join(str(t) for t in sorted(merged, key=lambda t: -t.value(sizes)))


def _compiled(found: Compiled | None) -> list[str]:
    if found is None:
        return [UNKNOWN, UNKNOWN]
    mark = "~" if found.loops else ""
    return [mark + _number(found.flops), mark + _number(found.bytes)]


def _time(found: Time | None) -> str:
    if found is None:
        return UNKNOWN
    return f"{_short(found.median)} ({_short(found.low)} to {_short(found.high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.5g}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _pair(pair: Pair) -> str:
    known = [_figure(number) for number in pair if number is not None]
    return " / ".join(known) if known else UNKNOWN
