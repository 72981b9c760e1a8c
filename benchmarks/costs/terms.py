"""The cost of a layer's attention as products of sizes: the terms behind the published orders.

They describe the code: a test compares their sums with the counts of the program itself,
`clew.lab.costs.multiply_adds` and `state_size`, whose definition of the counts is exact.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from benchmarks.costs.published import Setting

from clew.lab.costs.account import REPROJECTED

Kind = Literal["products", "elementwise", "shared", "floats", "integers"]
"""The kinds of terms: the three of `clew.lab.costs.Arithmetic`, and the state size."""

SYMBOLS = {
    "d": "hidden_size, width of the residual stream or of h",
    "H": "num_heads",
    "d_h": "head_size",
    "S": "window + 1, slots of the ring",
    "eta": "eta",
    "V": "vectors of AReLiT: r + 1, or r with `code` frequencies",
    "K": "key vectors of AReLiT: V, and one more with `code` frequencies, the normaliser",
}
"""The meaning of the letters in a term."""


class Term(NamedTuple):
    """One summand: `factor` times the product of `sizes`."""

    kind: Kind
    what: str
    """the computed or stored quantity"""
    factor: int
    sizes: tuple[str, ...]
    """names of sizes, in reading order"""

    def value(self, sizes: Mapping[str, int]) -> int:
        """The number for given sizes."""
        result = self.factor
        for name in self.sizes:
            result *= sizes[name]
        return result

    def __str__(self) -> str:
        """The term as text, for example "2 d H d_h"."""
        numbers = [str(self.factor)] if self.factor != 1 or not self.sizes else []
        return " ".join([*numbers, *_powers(self.sizes)])


def _powers(names: Iterable[str]) -> list[str]:
    """d d becomes d^2."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [name if count == 1 else f"{name}^{count}" for name, count in counts.items()]


def term(kind: Kind, what: str, factor: int, sizes: str) -> Term:
    """A term whose sizes are given as text: `term("products", "keys", 2, "d H d_h")`."""
    return Term(kind, what, factor, tuple(sizes.split()))


# The code contains the norm of the input twice, for the keys and values and for the query (the
# compiler computes it once), so it is counted twice. The distances' projection depends only on the
# parameters, so that a batch of environments shares it.
_WINDOW = (
    term("products", "query, key and value", 3, "d H d_h"),
    term("products", "scores of the contents", 1, "S H d_h"),
    term("products", "weighted sum of the values", 1, "S H d_h"),
    term("products", "output", 1, "H d_h d"),
    term("products", "scores of the distances", 1, "S H d_h"),
    term("shared", "projection of the distances", 1, "S d H d_h"),
    term("elementwise", "scale of the queries", 2, "H d_h"),
    term("elementwise", "norm", 6, "d"),
    term("floats", "stored inputs", 1, "S d"),
    term("integers", "slot and length", 2, ""),
)
_GATED_FEATURES = (
    term("products", "query, key, value, beta, gamma", 5, "d H d_h"),
    term("products", "maps", 3, "d H eta"),
    term("products", "output", 1, "H d_h d"),
    term("elementwise", "norm", 3, "d"),
    term("elementwise", "outer products, gamma k", 4, "eta H d_h"),
    term("elementwise", "beta v", 1, "H d_h"),
)

TERMS: dict[str, tuple[Term, ...]] = {
    "gtrxl" + REPROJECTED: (
        *_WINDOW,
        term("products", "keys and values of all stored inputs", 2, "S d H d_h"),
        term("elementwise", "norm of all stored inputs", 3, "S d"),
    ),
    "gtrxl": (*_WINDOW, term("floats", "their keys and values", 2, "S H d_h")),
    "linear_transformer": (
        term("products", "query, key and value", 3, "d H d_h"),
        term("products", "C q", 1, "H d_h d_h"),
        term("products", "output", 1, "H d_h d"),
        term("elementwise", "v (x) k", 1, "H d_h d_h"),
        term("elementwise", "s . q", 1, "H d_h"),
        term("elementwise", "elu of query and key", 2, "H d_h"),
        term("elementwise", "norm", 3, "d"),
        term("floats", "C", 1, "H d_h d_h"),
        term("floats", "s", 1, "H d_h"),
    ),
    "relit": (
        *_GATED_FEATURES,
        term("products", "C q", 1, "eta H d_h d_h"),
        term("elementwise", "decay of C", 1, "eta H d_h d_h"),
        term("elementwise", "decayed C", 1, "eta H d_h d_h"),
        term("elementwise", "v (x) k", 1, "eta H d_h d_h"),
        term("elementwise", "decayed s, s . q", 2, "eta H d_h"),
        term("floats", "C", 1, "eta H d_h d_h"),
        term("floats", "s", 1, "eta H d_h"),
    ),
    # The same with V pairs of vectors in place of C; s is the key vector of frequency 0, or, if
    # there is none (`code`), one vector more.
    "arelit": (
        *_GATED_FEATURES,
        term("elementwise", "decayed keys, new keys, k . q", 3, "K eta H d_h"),
        term("elementwise", "decayed values, new values, sum", 3, "V H d_h"),
        term("elementwise", "weights", 1, "V H"),
        term("floats", "key vectors", 1, "K eta H d_h"),
        term("floats", "value vectors", 1, "V H d_h"),
        term("integers", "tick", 1, ""),
    ),
}
"""For each attention: one step of a layer with all its heads, and its state."""


def sizes_of(setting: Setting) -> dict[str, int]:
    """The values of the letters at the sizes of a published figure."""
    return {
        "d": setting.hidden_size,
        "H": setting.num_heads,
        "d_h": setting.head_size,
        "S": setting.window + 1,
        "eta": setting.eta,
        "V": setting.r + 1,
        "K": setting.r + 1,
    }
