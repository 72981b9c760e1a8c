"""The cost of one step of each memory, from its sizes alone, by hand: sums of products of sizes.

The oracle for the counts from programs, `clew.lab.costs.multiply_adds` and `state_size`, and so for
the attentions' terms in `benchmarks.costs.terms`. Besides its letters: n inputs, L layers, (L-1)
one less, f the width of a feed-forward net, p sines or cosines in a position, N readings of one
observation of at most X.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from benchmarks.costs.terms import TERMS, Kind, Term, term

from clew.errors import UserError, unknown_name
from clew.lab.costs.account import REPROJECTED
from clew.lab.studies.models import PublishedGRU, PublishedGTrXL, PublishedLSTM
from clew.lab.studies.tmaze.models import PublishedAReLiT, PublishedReLiT
from clew.memory import MEMORIES, options_of
from clew.names import find, recorded_name

Options = Mapping[str, Any]


class Formula(NamedTuple):
    """The cost of one step of a memory, and its state, for one environment."""

    terms: tuple[Term, ...]
    sizes: dict[str, int]

    def total(self, *kinds: Kind) -> int:
        """The sum of the terms of some kinds."""
        return sum(term.value(self.sizes) for term in self.terms if term.kind in kinds)

    @property
    def per_step(self) -> int:
        """Multiply-adds of every step of every environment."""
        return self.total("products", "elementwise")

    def __str__(self) -> str:
        """All terms of a step, the largest first."""
        terms = [t for t in self.terms if t.kind in ("products", "elementwise")]
        terms.sort(key=lambda term: -term.value(self.sizes))
        return " + ".join(map(str, terms))


def repeated(terms: Iterable[Term], sizes: str) -> list[Term]:
    """Terms that occur several times, for example in each of L layers."""
    times = tuple(sizes.split())
    return [t._replace(sizes=(*times, *t.sizes)) for t in terms]


def formula(
    memory: str, input_size: int, *, reproject: bool = False, readings: int = 1, **options: Any
) -> Formula:
    """The cost of one step of a memory, and its state, for one environment.

    Args:
        memory: a name in `FORMULAS`.
        input_size: of one observation.
        reproject: keep only the inputs of a window, and project all of them to keys and values at
            every step, as in Algorithm 3 of Pramanik (2023).
        readings: how often a memory with adaptive halting reads an observation, 1 .. max_steps.
        **options: options of the memory that differ from their defaults.

    Raises:
        UserError: for a memory without a formula, an unknown option, or `reproject` where there is
            no window.
    """
    if memory not in FORMULAS:
        raise unknown_name("memory with a formula", memory, FORMULAS)
    defaults = options_of(find("memory", memory, MEMORIES))
    for option in options:
        if option not in defaults:
            raise unknown_name(f"option of {memory}", option, defaults)
    settings = defaults | options
    terms = FORMULAS[memory](settings)
    if reproject:
        if not settings.get("window") or "max_steps" in settings:
            raise UserError(f"{memory} has no one window to project again")
        terms = [t for t in terms if t.what != "their keys and values"]
        norm = settings.get("norm", "none") == "before"
        terms += repeated(reprojection_terms(norm=norm), "L")
    return Formula(tuple(terms), _sizes(input_size, settings, readings))


def _sizes(input_size: int, options: Options, readings: int) -> dict[str, int]:
    """The value of every letter for this memory's options."""
    d = options["hidden_size"]
    vectors = options.get("r", 0) + (0 if options.get("frequencies") == "code" else 1)
    ffn = options.get("ffn_size")
    return {
        "n": input_size,
        "d": d,
        "L": options["num_layers"],
        "(L-1)": options["num_layers"] - 1,
        "H": options.get("num_heads", 0),
        "d_h": options.get("head_size", 0),
        "S": options.get("window", 0) + 1,
        "f": d if ffn is None else ffn,
        "eta": options.get("eta", 0),
        "V": vectors,
        "K": vectors + (1 if options.get("frequencies") == "code" else 0),
        "p": (d + 1) // 2,
        "N": readings,
        "X": options.get("max_steps", 0),
    }


def window_terms(
    *, relative: bool, norm: bool, query_norm: bool = True, gradient: str = "full"
) -> list[Term]:
    """Softmax attention over a ring of cached keys and values, `WindowAttention`.

    The query is scaled twice, with either bias. With `gradient="current"` the input's own key and
    value are projected twice more, so that a zero with their gradient can be added.
    """
    others = () if relative else ("scores of the distances", "projection of the distances")
    terms = [t for t in TERMS["gtrxl"] if t.what not in ("norm", *others)]
    if norm:
        terms.append(term("elementwise", "norm", 6 if query_norm else 3, "d"))
    if gradient == "current":
        terms.append(term("products", "own key and value, twice again", 4, "d H d_h"))
        terms.append(term("elementwise", "own score and value", 2, "H d_h"))
        if norm:
            terms.append(term("elementwise", "norm, twice again", 6, "d"))
    return terms


def reprojection_terms(*, norm: bool) -> list[Term]:
    """Projecting every stored input again, which a step without cached keys and values must do."""
    terms = [t for t in TERMS["gtrxl" + REPROJECTED] if t not in TERMS["gtrxl"]]
    return terms if norm else [t for t in terms if t.kind == "products"]


def linear_terms(*, norm: bool) -> list[Term]:
    """Attention with elu + 1 in place of the softmax, `LinearAttention`."""
    return [t for t in TERMS["linear_transformer"] if norm or t.what != "norm"]


def relit_terms(*, query: str = "single") -> list[Term]:
    """Linear attention with gates on keys and on values, `GatedLinearAttention`.

    Either decay costs one multiplication for each element of C: (1 - beta) (1 - gamma), or
    beta gamma.
    """
    if query == "single":
        return list(TERMS["relit"])
    return [
        *(t._replace(factor=2) if t.what == "maps" else t for t in TERMS["relit"]),
        term("products", "query, a second time", 1, "H d_h d_h"),
        term("products", "map of the query", 1, "H d_h eta"),
    ]


def _none(options: Options) -> list[Term]:
    return [term("products", "first layer", 1, "n d"), term("products", "others", 1, "(L-1) d d")]


def _recurrent(gates: int, elementwise: int, floats: int) -> Callable[[Options], list[Term]]:
    def terms(options: Options) -> list[Term]:
        return [
            term("products", "first input", gates, "n d"),
            term("products", "other inputs", gates, "(L-1) d d"),
            term("products", "recurrent", gates, "L d d"),
            term("elementwise", "gates", elementwise, "L d"),
            term("floats", "state", floats, "L d"),
        ]

    return terms


def layer_terms(
    gate: str, norm: str, *, residual_weight: bool = False, inner_residual: bool = False
) -> list[Term]:
    """The parts of a `Layer` around its attention: gates, feed-forward net and norms."""
    terms = [term("products", "feed-forward net", 2, "d f")]
    if gate != "residual":
        terms.append(term("products", "gates", 12, "d d"))
        terms.append(term("elementwise", "gates", 4, "d"))
    if gate == "temporal_gru":
        terms.append(term("floats", "gates", 2, "d"))
    norms = (norm != "none") + (norm in ("after", "around")) + inner_residual
    if norms:
        terms.append(term("elementwise", "norms", 3 * norms, "d"))
    if residual_weight:
        terms.append(term("elementwise", "residual weight", 2, "d"))
    return terms


def _embedding(options: Options) -> list[Term]:
    return [term("products", "embedding", 1, "n d")] if options.get("embedding", True) else []


def _window_layer(options: Options, *, norm: str, gate: str, weight: bool = False) -> list[Term]:
    attention = window_terms(
        relative=True,
        norm=norm == "before",
        query_norm=options.get("query_norm", True),
        gradient=options.get("gradient", "full"),
    )
    inner = options.get("inner_residual", False)
    return attention + layer_terms(gate, norm, residual_weight=weight, inner_residual=inner)


def _transformer(options: Options) -> list[Term]:
    norm = options["norm"] == "before"
    attention = window_terms(relative=False, norm=norm, gradient=options["gradient"])
    layer = attention + layer_terms("residual", options["norm"])
    position = [term("elementwise", "position", 1, "p"), term("integers", "position", 1, "")]
    return _embedding(options) + repeated(layer, "L") + position


def _transformer_xl(options: Options) -> list[Term]:
    layer = _window_layer(options, norm=options["norm"], gate="residual")
    return _embedding(options) + repeated(layer, "L")


def _gtrxl(options: Options) -> list[Term]:
    layer = _window_layer(options, norm=options["norm"], gate=options["gate"])
    return _embedding(options) + repeated(layer, "L")


def _rezero(options: Options) -> list[Term]:
    layer = _window_layer(options, norm="none", gate="residual", weight=True)
    return _embedding(options) + repeated(layer, "L")


def _universal(options: Options, norm: str, gate: str, *, weight: bool) -> list[Term]:
    """A block that is read N times; its inputs are written into all X rings afterwards.

    `multiply_adds` knows no number of trips and counts one reading, N = 1.
    """
    layer = _window_layer(options, norm=norm, gate=gate, weight=weight)
    windows = [t for t in layer if t.what in ("stored inputs", "their keys and values")]
    others = [t for t in layer if t.kind in ("products", "elementwise", "shared")]
    counters = [t for t in layer if t.kind in ("floats", "integers") and t not in windows]
    writing = [term("products", "keys and values of all readings", 2, "d H d_h")]
    if norm == "before":
        writing.append(term("elementwise", "norm of all readings", 3, "d"))
    halting = [term("elementwise", "blend", 1, "d")]
    if options["halting"]:
        halting.append(term("products", "halting", 1, "d"))
    once = [term("integers", "position", 1, "")]
    if options["coordinates"]:
        once.append(term("elementwise", "position", 1, "p"))
    return [
        *_embedding(options),
        *repeated(others, "N L"),
        *repeated(halting, "N"),
        *repeated(writing + windows + counters, "X L"),
        *once,
    ]


def _stack(attention: list[Term], options: Options) -> list[Term]:
    layer = attention + layer_terms(options.get("gate", "gru"), options.get("norm", "before"))
    return _embedding(options) + repeated(layer, "L")


FORMULAS: dict[str, Callable[[Options], list[Term]]] = {
    "none": _none,
    "lstm": _recurrent(gates=4, elementwise=3, floats=2),
    "gru": _recurrent(gates=3, elementwise=2, floats=1),
    "transformer": _transformer,
    "transformer_xl": _transformer_xl,
    "gtrxl": _gtrxl,
    "rezero": _rezero,
    "universal": lambda o: _universal(o, o["norm"], "residual", weight=False),
    "integrated": lambda o: _universal(o, "none", "gru", weight=True),
    "linear_transformer": lambda o: _stack(linear_terms(norm=o["norm"] == "before"), o),
    "relit": lambda o: _stack(relit_terms(query=o.get("query", "single")), o),
    "arelit": lambda o: _stack(list(TERMS["arelit"]), o),
}
"""Maps the name of a memory to the terms of its step, a function of all its options."""
_ALIKE: dict[str, type] = {
    "gtrxl": PublishedGTrXL,
    "lstm": PublishedLSTM,
    "gru": PublishedGRU,
    "relit": PublishedReLiT,
    "arelit": PublishedAReLiT,
}
FORMULAS |= {recorded_name("memory", kind): FORMULAS[name] for name, kind in _ALIKE.items()}
