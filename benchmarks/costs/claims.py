"""The claims of Pramanik (2023) about costs, figure by figure, beside the counts made here."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
from benchmarks.costs import published as thesis
from benchmarks.costs.published import SETTINGS, Setting

from clew.lab.claims import HELD, NOT_HELD
from clew.lab.costs.account import REPROJECTED, Account, Subject
from clew.lab.costs.reproject import Reprojecting
from clew.memory import make_memory

Quantity = Literal["operations", "state"]
WHOLE_MEMORY = "gtrxl" + REPROJECTED
FLOPS = 2
"""Floating-point operations in one multiply-add."""
KEPT = 0.9
"""A published ratio holds if at least this fraction of it is found."""


class Figure(NamedTuple):
    """A published number: a quantity of `of`, or by how much that of `than` exceeds it."""

    source: str
    what: str
    published: str
    """as printed"""
    setting: Setting
    quantity: Quantity
    of: str
    """the attention whose operations or state size it is; of a ratio, the cheaper one"""
    than: str | None
    """of a ratio, the more expensive one"""
    by_thesis: float
    """by the thesis's own convention, `benchmarks.costs.published`"""
    note: str
    """the convention that reproduces the published figure, or a note that none does"""

    @property
    def reproduced(self) -> bool:
        """Whether the thesis's convention gives the printed digits."""
        return thesis.printed(self.by_thesis, self.published)


class Pair(NamedTuple):
    """A number with either form of GTrXL; None where it is unknown or does not depend on it."""

    reprojected: float | None
    """with a GTrXL that projects its whole memory at every step"""
    cached: float | None
    """with its key/value cache, or without any GTrXL"""


class LayerFigure(NamedTuple):
    """A published figure counted here, for a whole layer with all its heads."""

    counted: Pair
    """by multiply-adds, two operations each, or by the state size (floats)"""
    compiled: Pair
    """by XLA's count of the compiled step, or by bytes of state"""
    measured: Pair
    """by the time of a step; there is none for state"""


def figures() -> list[Figure]:
    """Every published number of operations or state, in the order of the thesis."""
    file = Path(__file__).with_name("published.csv")
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return [_figure(dict(row)) for row in rows]


def _figure(row: dict[str, Any]) -> Figure:
    """A row with the number that the thesis's convention gives for it."""
    setting = next(s for s in SETTINGS if s.name == row["setting"])
    vectors = setting.r if row.pop("vectors") == "r" else setting.r + 1
    row |= {"setting": setting, "than": row["than"] or None}
    of, than = (
        name and thesis.by_convention(row["quantity"], name, setting, vectors)
        for name in (row["of"], row["than"])
    )
    value = of if than is None else than / of
    if row["note"].startswith("8.4e6 / 2.1e5"):  # a ratio of two figures that were cut off first
        value = 8.4e6 / 2.1e5
    return Figure(**row, by_thesis=value)


ELSEWHERE = (
    ("Figure 5.2", "success of GTrXL-256 and GTrXL-128 on the T-Maze"),
    ("Figure 5.3", "success of LSTM, GRU, ReLiT and AReLiT on the T-Maze"),
    ("Figure 5.6", "frames per second and GPU memory of training in the Memory Maze"),
    ("Section 5.2.3", "order of the agents' returns in the Memory Maze"),
    ("Section 5.2.4", "returns of GTrXL with memories of 64, 128 and 256"),
)
"""Published claims that only learning curves or runs on a GPU can answer, not a count."""


def of_layer(figure: Figure, accounts: Mapping[str, Account]) -> LayerFigure:
    """The figure for whole layers; that of a single head is its fraction of the layer's.

    Args:
        figure: the published figure.
        accounts: of the figure's setting, by name, as `attention_subjects` names them.
    """
    heads = figure.setting.num_heads if figure.than is None else 1

    def number(name: str, how: str) -> float | None:
        found = amount(accounts[name], figure.quantity, how)
        return None if found is None else found / heads

    def claimed(how: str, gtrxl: str) -> float | None:
        of = number(gtrxl if figure.of == "gtrxl" else figure.of, how)
        if figure.than is None or of is None:
            return of
        than = number(gtrxl if figure.than == "gtrxl" else figure.than, how)
        return None if than is None else than / of

    def pair(how: str) -> Pair:
        concerned = "gtrxl" in (figure.of, figure.than)
        return Pair(claimed(how, WHOLE_MEMORY) if concerned else None, claimed(how, "gtrxl"))

    return LayerFigure(pair("counted"), pair("compiled"), pair("measured"))


def amount(account: Account, quantity: Quantity, how: str) -> float | None:
    """Operations or state size: "counted", "compiled" (XLA; bytes) or "measured" (us)."""
    if quantity == "state":
        found = {"counted": account.state.floats, "compiled": account.state.bytes}
        return found.get(how)
    if how == "counted":
        return FLOPS * account.step.per_step
    if how == "compiled":
        return None if account.compiled_step is None else account.compiled_step.flops
    return None if account.acting is None else account.acting.middle


def verdict(figure: Figure, counted: Pair) -> str:
    """Whether a published ratio holds with a re-projecting GTrXL, and with a cached one.

    A ratio holds if the counted one is at least `KEPT` of it; otherwise it is smaller, or reversed.
    Both must be read together with the other quantity: without its cache a GTrXL is slow and small,
    with it fast and large, never slow and large. A number that is not a ratio gets no verdict.
    """
    words = []
    for number in counted if figure.than is not None else ():
        if number is None:
            continue
        left = "smaller" if number >= 1 else "reversed"
        holds = number >= KEPT * float(figure.published)
        words.append(HELD if holds else f"{NOT_HELD} ({left})")
    return " / ".join(words)


def attention_subjects(setting: Setting) -> list[Subject]:
    """One layer's attention of five kinds, with all its heads and its output product."""
    window, features = {"window": setting.window}, {"eta": setting.eta}
    return [
        _attention("gtrxl" + REPROJECTED, "gtrxl", setting, window, reproject=True),
        _attention("gtrxl", "gtrxl", setting, window),
        _attention("linear_transformer", "linear_transformer", setting, {}),
        _attention("relit", "relit", setting, features),
        _attention("arelit", "arelit", setting, features | {"r": setting.r}),
    ]


def _attention(
    name: str, memory: str, setting: Setting, more: dict[str, int], *, reproject: bool = False
) -> Subject:
    size, options = setting.hidden_size, setting.sizes | more

    def make(key: jax.Array) -> Any:
        stack: Any = make_memory(memory, input_size=size, key=key, **options)
        attention = stack.layers[0].attention
        return Reprojecting(attention) if reproject else attention

    return Subject(name, make, size, has_chunk=not reproject)
