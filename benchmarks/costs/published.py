"""The operations and the state size that Pramanik (2023) counts, for one head of one attention.

The thesis says that it counts floating-point operations and the size of the recurrent state, but
gives no formulas. The formulas here were found by trial: each reproduces published figures to their
last digit, or applies the same rule to figures that must then follow from it. The rule:

- a multiply-add is two operations, an elementwise multiplication, addition or relu is one, a
  sigmoid, a cosine, an exponential and the softmax are none; biases are added;
- only the attention's own equations: no norm, no position encoding, no output product;
- one head by itself, with the whole memory of M vectors of d numbers that all heads share;
- figures are truncated, not rounded (7.877 is printed as 7.87, 1.969 as 1.96).

The figures determine that GTrXL projects its whole memory, that a multiply-add is two operations,
and the 8 in ReLiT's update. The small terms are 1% of ReLiT's operations; other ways to count them
would fit as well.
"""

from typing import NamedTuple


class Setting(NamedTuple):
    """The sizes that a published figure was computed for."""

    name: str
    source: str
    hidden_size: int
    num_heads: int
    head_size: int
    window: int
    eta: int
    r: int

    @property
    def sizes(self) -> dict[str, int]:
        """The options that every attention of this setting has."""
        return {
            "hidden_size": self.hidden_size,
            "num_layers": 1,
            "num_heads": self.num_heads,
            "head_size": self.head_size,
        }


PARISOTTO = Setting("sections 3.3, 4.2", "Pramanik (2023), p. 25 and 35", 256, 8, 64, 512, 4, 7)
"""The sizes of Parisotto et al. (2020), with the 8 heads of section 3.3.1."""
TMAZE = Setting("Table 5.1", "Pramanik (2023), Table A.2", 128, 4, 64, 256, 4, 1)
SETTINGS = (PARISOTTO, TMAZE)


def by_convention(quantity: str, attention: str, setting: Setting, vectors: int) -> float:
    """The operations or the state of one head: of "gtrxl", "relit", or "arelit" with this many
    vectors in place of C."""
    d, head, eta = setting.hidden_size, setting.head_size, setting.eta
    if quantity == "operations":
        return {
            "gtrxl": gtrxl_operations(d, head, setting.window),
            "relit": relit_operations(d, head, eta),
            "arelit": arelit_operations(d, head, eta, vectors),
        }[attention]
    return {
        "gtrxl": gtrxl_state(d, setting.window),
        "relit": relit_state(head, eta),
        "arelit": arelit_state(head, eta, vectors),
    }[attention]


def gtrxl_operations(d: int, head: int, window: int) -> int:
    """Algorithm 3: keys and values of all M stored vectors, a query, scores and a weighted sum.

    4 M d d_h + 2 d d_h + 4 M d_h, the first of which is 99% of it.
    """
    projected = 2 * 2 * window * d * head
    return projected + 2 * d * head + 2 * 2 * window * head


def gtrxl_state(d: int, window: int) -> int:
    """M d, charged to every head in full."""
    return window * d


def relit_operations(d: int, head: int, eta: int) -> int:
    """Algorithm 5, with the update of C as in the authors' code.

    2 (5 d d_h + 3 d eta) for the products, 8 eta d_h^2 for C, and 9 eta d_h + 9 d_h + 5 eta for the
    rest (biases and relus, outer products, s and s . q, the division). The 8 are two outer
    products, 1 - beta gamma, two multiplications, an addition, and two for C q; Eq. 3.5 as it
    stands in the thesis, (1 - beta) (x) (1 - gamma), has 6, and does not give the published ratio.
    """
    return _features(d, head, eta) + 8 * eta * head**2


def relit_state(head: int, eta: int) -> int:
    """C and s, eta d_h^2 + eta d_h."""
    return eta * head**2 + eta * head


def arelit_operations(d: int, head: int, eta: int, vectors: int) -> int:
    """Algorithm 6 by the same rule: 5 (eta + 1) d_h for every pair of vectors in place of C.

    Three to decay, scale and add to a vector and two to read it. This gives none of the published
    operations of AReLiT, see `arelit_products`.
    """
    return _features(d, head, eta) + 2 * head + 5 * vectors * (eta + 1) * head


def arelit_products(d: int, head: int) -> int:
    """Two operations for each multiply-add of the five products of Algorithm 6 with d d_h weights.

    A lower bound of AReLiT's operations by the rule that fits GTrXL and ReLiT. At d = 128 and
    d_h = 64 it is 81,920, above the 67,000 of Table 5.1 for everything that AReLiT does.
    """
    return 2 * 5 * d * head


def arelit_state(head: int, eta: int, vectors: int) -> int:
    """(eta + 1) d_h for each pair of vectors, and s."""
    return vectors * (eta + 1) * head + eta * head


def _features(d: int, head: int, eta: int) -> int:
    """Keys, queries, values, gates, the normaliser and its readout, and the division."""
    products = 2 * (5 * d * head + 3 * d * eta)
    biases, relus = 5 * head + 3 * eta, 2 * (head + eta)
    outer_products = 3 * eta * head
    normaliser = 4 * eta * head + 2 * eta * head
    return products + biases + relus + outer_products + normaliser + head


def printed(value: float, published: str) -> bool:
    """Whether a number equals a published one when it is truncated or rounded to its digits.

    `published` is written as in the thesis, "110.95", or with an exponent, "8.4e6".
    """
    mantissa, _, exponent = published.partition("e")
    decimals = len(mantissa.partition(".")[2])
    scaled = value / 10 ** int(exponent or 0) * 10**decimals
    wanted = round(float(mantissa) * 10**decimals)
    return int(scaled + 1e-9) == wanted or round(scaled) == wanted
