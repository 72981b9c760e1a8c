"""What Pramanik (2023) says of costs, claim by claim, beside what comes out."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from clew.lab.costs import thesis
from clew.lab.costs.account import FLOPS, Account
from clew.lab.costs.subjects import PARISOTTO, REPROJECTED, TMAZE, Setting

Quantity = Literal["operations", "state"]
WHOLE_MEMORY = "gtrxl" + REPROJECTED


class Claim(NamedTuple):
    """A published number: a quantity of `of`, or how many times that of `than` it goes into."""

    source: str
    what: str
    published: str
    """as printed"""
    setting: Setting
    quantity: Quantity
    of: str
    """the attention whose operations or state it is; of a ratio, the cheaper one"""
    than: str | None
    """of a ratio, the dearer one"""
    by_thesis: float
    """by the thesis's own convention, `clew.lab.costs.thesis`"""
    note: str
    """under which convention the published figure comes out, or that it does not"""

    @property
    def reproduced(self) -> bool:
        """Whether the thesis's convention gives the printed digits."""
        return thesis.printed(self.by_thesis, self.published)


class Pair(NamedTuple):
    """A number with either GTrXL in it; None where it is not known, or does not depend on it."""

    reprojected: float | None
    """with one that projects its whole memory at every step"""
    cached: float | None
    """with its key/value cache, or without any GTrXL"""


class Ours(NamedTuple):
    """A claim's number for a whole layer, all heads."""

    counted: Pair
    """by multiply-adds, two operations each, or by numbers of state"""
    compiled: Pair
    """by XLA's count of the compiled step, or by bytes of state"""
    measured: Pair
    """by the time of a step; of state there is none"""


def claims() -> list[Claim]:
    """Every published claim on operations or state, in the order of the thesis."""
    return [*_section_33(), *_section_42(), *_table_51(), *_section_514()]


ELSEWHERE = (
    ("Figure 5.2", "success of GTrXL-256 and GTrXL-128 on the T-Maze"),
    ("Figure 5.3", "success of LSTM, GRU, ReLiT and AReLiT on the T-Maze"),
    ("Figure 5.6", "frames per second and GPU memory of training in the Memory Maze"),
    ("Section 5.2.3", "order of the agents' returns in the Memory Maze"),
    ("Section 5.2.4", "returns of GTrXL with memories of 64, 128 and 256"),
)
"""Published claims that learning curves or runs on a GPU must answer, and no count can."""


def _section_33() -> list[Claim]:
    s = PARISOTTO
    gtrxl = thesis.gtrxl_operations(s.hidden_size, s.head_size, s.window)
    relit = thesis.relit_operations(s.hidden_size, s.head_size, s.eta)
    state = thesis.gtrxl_state(s.hidden_size, s.window) / thesis.relit_state(s.head_size, s.eta)
    where = "Section 3.3"
    update = "GTrXL re-projected; ReLiT's update as in the published code, 8 a number of C"
    return [
        Claim(where, "ReLiT faster", "110.95", s, "operations", "relit", "gtrxl",
              gtrxl / relit, update),
        Claim(where, "ReLiT less space", "7.87", s, "state", "relit", "gtrxl", state,
              "one head is charged the inputs that all heads share"),
    ]  # fmt: skip


def _section_42() -> list[Claim]:
    s = PARISOTTO
    d, head, eta = s.hidden_size, s.head_size, s.eta
    gtrxl = thesis.gtrxl_operations(d, head, s.window)
    relit = thesis.relit_operations(d, head, eta)
    arelit = thesis.arelit_operations(d, head, eta, s.r + 1)
    where, space = "Section 4.2", thesis.gtrxl_state(d, s.window)
    bound = thesis.arelit_products(d, head)
    missing = f"does not come out: five of its products alone are {bound:,}, {gtrxl / bound:.0f}x"
    less = "does not come out: follows from the operations above"
    return [
        Claim(where, "AReLiT faster", "237.83", s, "operations", "arelit", "gtrxl",
              gtrxl / arelit, missing),
        Claim(where, "AReLiT less space", "52.51", s, "state", "arelit", "gtrxl",
              space / thesis.arelit_state(head, eta, s.r), "with r vectors, not r + 1"),
        Claim(where, "AReLiT faster than ReLiT", "2.14", s, "operations", "arelit", "relit",
              relit / arelit, less),
        Claim(where, "AReLiT less space than ReLiT", "5.9", s, "state", "arelit", "relit",
              thesis.relit_state(head, eta) / thesis.arelit_state(head, eta, s.r + 1),
              "with r + 1 vectors, for the same r"),
    ]  # fmt: skip


def _table_51() -> list[Claim]:
    s = TMAZE
    d, head, eta = s.hidden_size, s.head_size, s.eta
    arelit = thesis.arelit_operations(d, head, eta, s.r + 1)
    where, bound = "Table 5.1", thesis.arelit_products(d, head)
    return [
        Claim(where, "GTrXL-256 operations", "8.4e6", s, "operations", "gtrxl", None,
              thesis.gtrxl_operations(d, head, s.window), "re-projected; cut off"),
        Claim(where, "ReLiT operations", "2.1e5", s, "operations", "relit", None,
              thesis.relit_operations(d, head, eta), "as in section 3.3; cut off"),
        Claim(where, "AReLiT operations", "6.7e4", s, "operations", "arelit", None,
              arelit, f"does not come out: five of its products alone are {bound:,}"),
        Claim(where, "GTrXL-256 state", "32768", s, "state", "gtrxl", None,
              thesis.gtrxl_state(d, s.window), "M d, shared by all heads"),
        Claim(where, "ReLiT state", "16640", s, "state", "relit", None,
              thesis.relit_state(head, eta), "C and s"),
        Claim(where, "AReLiT state", "896", s, "state", "arelit", None,
              thesis.arelit_state(head, eta, s.r + 1), "r + 1 vectors, and s"),
    ]  # fmt: skip


def _section_514() -> list[Claim]:
    s = TMAZE
    d, head, eta = s.hidden_size, s.head_size, s.eta
    gtrxl, space = thesis.gtrxl_operations(d, head, s.window), thesis.gtrxl_state(d, s.window)
    relit = thesis.relit_operations(d, head, eta)
    arelit = thesis.arelit_operations(d, head, eta, s.r + 1)
    where = "Section 5.1.4"
    printed = f"8.4e6 / 2.1e5, the figures as cut off; {gtrxl:,} / {relit:,} is less"
    return [
        Claim(where, "ReLiT faster", "40", s, "operations", "relit", "gtrxl", 8.4e6 / 2.1e5,
              printed),
        Claim(where, "ReLiT less space", "1.96", s, "state", "relit", "gtrxl",
              space / thesis.relit_state(head, eta), "as in section 3.3"),
        Claim(where, "AReLiT faster", "125.1", s, "operations", "arelit", "gtrxl",
              gtrxl / arelit, "does not come out: follows from Table 5.1"),
        Claim(where, "AReLiT less space", "36.57", s, "state", "arelit", "gtrxl",
              space / thesis.arelit_state(head, eta, s.r + 1), "r + 1 vectors, and s"),
    ]  # fmt: skip


def ours(claim: Claim, accounts: Mapping[str, Account]) -> Ours:
    """The claim's number for whole layers; a figure of one head is of its share of the layer.

    Args:
        claim: what was published.
        accounts: of the claim's setting, by name, as `attention_subjects` names them.
    """
    heads = claim.setting.num_heads if claim.than is None else 1

    def number(name: str, how: str) -> float | None:
        found = amount(accounts[name], claim.quantity, how)
        return None if found is None else found / heads

    def claimed(how: str, gtrxl: str) -> float | None:
        of = number(gtrxl if claim.of == "gtrxl" else claim.of, how)
        if claim.than is None or of is None:
            return of
        than = number(gtrxl if claim.than == "gtrxl" else claim.than, how)
        return None if than is None else than / of

    def pair(how: str) -> Pair:
        concerned = "gtrxl" in (claim.of, claim.than)
        return Pair(claimed(how, WHOLE_MEMORY) if concerned else None, claimed(how, "gtrxl"))

    return Ours(pair("counted"), pair("compiled"), pair("measured"))


def amount(account: Account, quantity: Quantity, how: str) -> float | None:
    """Operations or numbers of state: "counted", "compiled" (XLA; bytes) or "measured" (us)."""
    if quantity == "state":
        found = {"counted": account.state.floats, "compiled": account.state.bytes}
        return found.get(how)
    if how == "counted":
        return FLOPS * account.step.per_step
    if how == "compiled":
        return None if account.compiled_step is None else account.compiled_step.flops
    return None if account.acting is None else account.acting.median


def verdict(claim: Claim, counted: Pair) -> str:
    """What is left of a published ratio, with a re-projecting GTrXL and with a cached one.

    A ratio holds if the counted one is at least 0.9 of it, is reversed below 1, and smaller
    between. Both must be read together with the other quantity: without its cache a GTrXL is slow
    and small, with it fast and large, never slow and large.
    """
    if claim.than is None:
        return ""
    words = []
    for number in counted:
        if number is not None:
            lower = "smaller" if number >= 1 else "reversed"
            words.append("holds" if number >= 0.9 * float(claim.published) else lower)
    return " / ".join(words)
