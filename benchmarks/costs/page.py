"""The published figures on costs beside the counts: tables, and a picture of contexts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.costs.claims import (
    ELSEWHERE,
    FLOPS,
    WHOLE_MEMORY,
    Figure,
    Pair,
    attention_subjects,
    figures,
    of_layer,
    verdict,
)
from benchmarks.costs.published import PARISOTTO, SETTINGS, Setting
from benchmarks.costs.terms import SYMBOLS, TERMS, Term, sizes_of
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from clew.lab.costs.account import (
    REPROJECTED,
    Account,
    CostPlan,
    accounts,
    memory_subjects,
)
from clew.lab.costs.tables import compiled_entries, number, time_entry
from clew.report.document import UNKNOWN, Table, tabulate
from clew.report.figures import COLOURS, new_figure

CONTEXTS = tuple(2**k for k in range(5, 14))
"""Window lengths of GTrXL, in steps."""


def attention_table(name: str, setting: Setting, of: Sequence[Account]) -> Table:
    """The attention of one layer at the sizes of a published figure, all heads."""
    columns = ["one layer's attention", "state floats", "state bytes", "FLOP counted"]
    columns += ["per batch", "XLA step FLOP", "XLA step bytes", "acting us", "chunk us"]
    rows = []
    for a in of:
        row = [a.name, number(a.state.floats), number(a.state.bytes)]
        row += [number(FLOPS * a.step.per_step), number(FLOPS * a.step.shared)]
        rows.append(
            [*row, *compiled_entries(a.compiled_step), time_entry(a.acting), time_entry(a.reading)]
        )
    title = (
        f"{setting.name}: d = {setting.hidden_size}, {setting.num_heads} heads of "
        f"{setting.head_size}, M = {setting.window}, eta = {setting.eta}, r = {setting.r}"
    )
    note = (
        "Per observation of one environment. 'Per batch': GTrXL's projection of its distances, "
        "which depends on parameters alone. A single step computes it once for its whole batch, so "
        "it is in XLA's FLOP; in a rollout the compiler moves it out of the loop. Times: median "
        "and its 95% interval. ~: the program loops, and XLA counts a loop's body once."
    )
    return tabulate(name, title, columns, rows, note)


Found = Mapping[str, Mapping[str, Account]]
"""The costs of one layer's attention, by the name of the setting, then by that of the attention."""


def attention(plan: CostPlan, log: Callable[[str], None]) -> Found:
    """The costs of every attention in every setting with published figures."""
    return {
        s.name: {a.name: a for a in accounts(attention_subjects(s), plan, log)} for s in SETTINGS
    }


def published_tables(found: Found) -> list[Table]:
    """Every table of published figures."""
    names = ("attention-section-4.2", "attention-table-5.1")
    tables = [*figures_tables(figures(), found), orders_table()]
    for name, setting in zip(names, SETTINGS, strict=True):
        tables.append(attention_table(name, setting, list(found[setting.name].values())))
    return tables


def published_data(found: Found, plan: CostPlan) -> dict[str, Any]:
    """The numbers of `published_tables` for JSON."""
    return {
        "attention": {
            setting: {name: a.as_data(plan.repeats) for name, a in of.items()}
            for setting, of in found.items()
        },
        "claims": [_as_data(figure, found[figure.setting.name]) for figure in figures()],
        "elsewhere": [f"{where}: {what}" for where, what in ELSEWHERE],
    }


def _as_data(figure: Figure, of: Mapping[str, Account]) -> dict[str, Any]:
    """A published figure and its counts here, for JSON."""
    counted = of_layer(figure, of)
    more = {"setting": figure.setting.name, "reproduced": figure.reproduced, "ours": counted}
    return figure._asdict() | more | {"verdict": verdict(figure, counted.counted)}


def figures_tables(published: Sequence[Figure], of: Found) -> tuple[Table, Table]:
    """Every published number on costs: by the thesis's convention, and as counted here."""
    by_thesis, by_count = [], []
    for figure in published:
        found = of_layer(figure, of[figure.setting.name])
        what = f"{figure.what} ({figure.source})"
        printed = "yes" if figure.reproduced else "no"
        entry = _figure(figure.by_thesis)
        by_thesis.append([what, figure.published, entry, printed, figure.note])
        pairs = (found.counted, found.compiled, found.measured)
        outcome = verdict(figure, found.counted)
        by_count.append([what, figure.published, *map(_pair, pairs), outcome])
    first = tabulate(
        "claims-by-thesis",
        "Published figures by the thesis's own convention",
        ("", "published", "by its convention", "reproduced", "remark"),
        by_thesis,
    )
    second = tabulate(
        "claims-counted",
        "The same for a whole layer, with 2 operations per multiply-add and the state as stored",
        ("", "published", "counted", "XLA", "measured", "verdict on the count"),
        by_count,
        "'faster' and 'less space' are ratios, the others one head's fraction of its layer. Pairs: "
        "with a GTrXL that projects its whole memory at every step / with its key/value cache. "
        "XLA: FLOP of a compiled step, or bytes of the state. Measured: microseconds of acting.",
    )
    return first, second


def orders_table() -> Table:
    """Tables 3.1 and 4.1: the published orders, and the terms that they stand for."""
    published = {
        WHOLE_MEMORY: ("O(M d)", "O(M d^2)", "O(L M)"),
        "gtrxl": ("O(M d)", "O(M d^2)", "O(L M)"),
        "linear_transformer": ("O(d_k d)", "O(d_k d)", "unbounded"),
        "relit": ("O(eta d^2)", "O(eta d^2)", "unbounded"),
        "arelit": ("O(r eta d)", "O(d^2 + r eta d)", "unbounded"),
    }
    rows, sizes = [], sizes_of(PARISOTTO)
    for name, (space, work, context) in published.items():
        of = {kind: [t for t in TERMS[name] if t.kind == kind] for kind in _ORDERED}
        least = 0.02 * max(t.value(sizes) for t in of["products"])
        step = [t for t in of["products"] + of["elementwise"] if t.value(sizes) > least]
        rows.append([name, space, _sum(of["floats"], sizes), work, _sum(step, sizes), context])
    columns = ("", "published space", "state floats per layer", "published time")
    letters = "; ".join(f"{k}: {SYMBOLS[k]}" for k in ("S", "H", "d_h", "V", "K"))
    return tabulate(
        "orders",
        "Tables 3.1 and 4.1: the orders with d_h = d, and their terms",
        (*columns, "multiply-adds per step of a layer", "published context"),
        rows,
        f"Terms above 2% of the largest at M = 512, d = 256, largest first. {letters}.",
    )


_ORDERED = ("products", "elementwise", "floats")


def _sum(terms: Sequence[Term], sizes: dict[str, int]) -> str:
    """Merges terms of equal sizes, the largest first."""
    factors: dict[tuple[str, ...], int] = {}
    for t in terms:
        key = tuple(sorted(t.sizes, key=list(SYMBOLS).index))
        factors[key] = factors.get(key, 0) + t.factor
    merged = [Term("products", "", factor, key) for key, factor in factors.items()]
    return " + ".join(str(t) for t in sorted(merged, key=lambda t: -t.value(sizes)))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.5g}"


def _pair(pair: Pair) -> str:
    known = [_figure(number) for number in pair if number is not None]
    return " / ".join(known) if known else UNKNOWN


class Line(NamedTuple):
    """One memory at every length of context."""

    label: str
    operations: list[int]
    """multiply-adds of a step"""
    floats: list[int]
    """state size"""


def lines(input_size: int = 16) -> list[Line]:
    """The memories of Pramanik's T-Maze study at Table A.2's sizes, counted."""
    layers = {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "head_size": 64}
    windows = {f"{w}": ("gtrxl", layers | {"window": w}) for w in CONTEXTS}
    others = {
        "ReLiT": ("relit", layers | {"eta": 4}),
        "AReLiT": ("arelit", layers | {"eta": 4, "r": 1}),
        "Linear Transformer": ("linear_transformer", layers),
        "LSTM": ("lstm", {"hidden_size": 600}),
        "GRU": ("gru", {"hidden_size": 680}),
    }
    of_windows = accounts(memory_subjects(windows, input_size), CostPlan())
    found = {"GTrXL" + REPROJECTED: of_windows[1::2], "GTrXL, cached": of_windows[::2]}
    for one in accounts(memory_subjects(others, input_size), CostPlan()):
        found[one.name] = [one] * len(CONTEXTS)
    return [
        Line(label, [a.step.per_step for a in of], [a.state.floats for a in of])
        for label, of in found.items()
    ]


def crossings(lines: Sequence[Line]) -> dict[str, int]:
    """The smallest window at which a cached GTrXL's step costs more than each other memory's.

    GTrXL's multiply-adds are linear in its window, so two windows determine them.
    """
    cached = next(line for line in lines if line.label == "GTrXL, cached")
    (x0, x1), (y0, y1) = CONTEXTS[:2], cached.operations[:2]
    slope = (y1 - y0) // (x1 - x0)
    return {
        line.label: max(1, x0 + (line.operations[0] - y0) // slope + 1)
        for line in lines
        if not line.label.startswith("GTrXL")
    }


def draw(drawn: Sequence[Line], path: Path) -> None:
    """Writes the picture as a PNG."""
    figure = new_figure(12, 5)
    left, right = figure.subplots(1, 2)
    _panel(left, drawn, [line.operations for line in drawn], "multiply-adds per step")
    _panel(right, drawn, [line.floats for line in drawn], "state size per environment (floats)")
    left.set_title("Operations", loc="left")
    right.set_title("State", loc="left")
    figure.suptitle(
        "Whole memories at the sizes of Pramanik (2023), Table A.2; GTrXL's context is its window M"
    )
    figure.savefig(path, dpi=110)


def _panel(axes: Axes, drawn: Sequence[Line], values: Sequence[Sequence[int]], what: str) -> None:
    """One quantity of every memory, each line labelled at its right end."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for line, ys, colour in zip(drawn, values, COLOURS, strict=True):
        style = "--" if REPROJECTED in line.label else "-"
        axes.plot(CONTEXTS, ys, style, color=colour, linewidth=1.8)
    low = min(min(ys) for ys in values)
    high = max(max(ys) for ys in values)
    ends = _apart([ys[-1] for ys in values], (high / low) ** 0.055)
    for line, ys, y, colour in zip(drawn, values, ends, COLOURS, strict=True):
        edge = [CONTEXTS[-1], CONTEXTS[-1] * 1.2]
        axes.plot(edge, [ys[-1], y], color=colour, linewidth=0.7, clip_on=False)
        axes.text(CONTEXTS[-1] * 1.25, y, line.label, color=colour, va="center", fontsize=9)
    axes.set_xticks(CONTEXTS, [f"{c:,}" for c in CONTEXTS], fontsize=8)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(CONTEXTS[0] / 1.1, CONTEXTS[-1])
    axes.set_xlabel("context (steps)")
    axes.set_ylabel(what)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _apart(values: Sequence[int], least: float) -> list[float]:
    """Positions for labels at the given heights, each at least `least` times the one below."""
    places = [0.0] * len(values)
    before = 0.0
    for index in sorted(range(len(values)), key=lambda i: values[i]):
        places[index] = before = max(float(values[index]), before * least)
    return places
