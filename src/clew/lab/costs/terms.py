"""Costs as formulas: sums of products of sizes, which a person reads and a program evaluates."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Kind = Literal["products", "elementwise", "shared", "floats", "integers"]
"""What a term counts: the three kinds of `clew.lab.costs.Arithmetic`, and numbers of state."""

SYMBOLS = {
    "n": "numbers in one observation",
    "d": "hidden_size, width of the residual stream or of h",
    "L": "num_layers",
    "(L-1)": "num_layers less one",
    "H": "num_heads",
    "d_h": "head_size",
    "S": "window + 1, slots of the ring",
    "f": "ffn_size",
    "eta": "eta",
    "V": "vectors of AReLiT: r + 1, or r with `code` frequencies",
    "K": "key vectors of AReLiT: V, and one more with `code` frequencies, the normaliser",
    "p": "sines or cosines in a position: d / 2, rounded up",
    "N": "readings of one observation",
    "X": "max_steps, most readings of one observation",
}
"""What the letters in a formula stand for."""


class Term(NamedTuple):
    """One summand: `factor` times the product of `sizes`."""

    kind: Kind
    what: str
    """what is computed or held"""
    factor: int
    sizes: tuple[str, ...]
    """names from `SYMBOLS`, in the order in which they are read"""

    def value(self, sizes: Mapping[str, int]) -> int:
        """The number for given sizes."""
        result = self.factor
        for name in self.sizes:
            result *= sizes[name]
        return result

    def __str__(self) -> str:
        """As it is read, for example "2 d H d_h"."""
        numbers = [str(self.factor)] if self.factor != 1 or not self.sizes else []
        return " ".join([*numbers, *_powers(self.sizes)])


class Formula(NamedTuple):
    """What one step of a memory costs, and its state, for one environment."""

    terms: tuple[Term, ...]
    sizes: dict[str, int]

    def total(self, *kinds: Kind) -> int:
        """The sum of the terms of some kinds."""
        return sum(term.value(self.sizes) for term in self.terms if term.kind in kinds)

    @property
    def per_step(self) -> int:
        """Multiply-adds that every environment pays at every step."""
        return self.total("products", "elementwise")

    def __str__(self) -> str:
        """All terms of a step, the largest first."""
        terms = [t for t in self.terms if t.kind in ("products", "elementwise")]
        terms.sort(key=lambda term: -term.value(self.sizes))
        return " + ".join(map(str, terms))


def term(kind: Kind, what: str, factor: int, sizes: str) -> Term:
    """A term, its sizes written as one reads them: `term("products", "keys", 2, "d H d_h")`."""
    return Term(kind, what, factor, tuple(sizes.split()))


def repeated(terms: Iterable[Term], sizes: str) -> list[Term]:
    """Terms that are paid several times, for example in each of L layers."""
    times = tuple(sizes.split())
    return [t._replace(sizes=(*times, *t.sizes)) for t in terms]


def _powers(names: Iterable[str]) -> list[str]:
    """d d becomes d^2."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [name if count == 1 else f"{name}^{count}" for name, count in counts.items()]
