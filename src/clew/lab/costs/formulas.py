"""What one step of each memory costs, from its sizes alone.

The formulas describe the code: a test holds them against the counts of the program itself,
`clew.lab.costs.multiply_adds` and `state_size`, exactly, at several sizes and for every option that
changes them. What is counted is said at `multiply_adds`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from clew.errors import UserError, unknown_name
from clew.lab.costs.attention_terms import (
    arelit_terms,
    linear_terms,
    relit_terms,
    reprojection_terms,
    window_terms,
)
from clew.lab.costs.terms import Formula, Term, repeated, term
from clew.memory import options_of

Options = Mapping[str, Any]


def formula(
    memory: str, input_size: int, *, reproject: bool = False, readings: int = 1, **options: Any
) -> Formula:
    """The cost of one step of a memory, and its state, for one environment.

    Args:
        memory: a name in `FORMULAS`.
        input_size: numbers in one observation.
        reproject: keep the inputs of a window alone, and project all of them to keys and values at
            every step, as Algorithm 3 of Pramanik (2023) is written.
        readings: how often a memory with adaptive halting reads an observation, 1 .. max_steps.
        **options: those of the memory that are not at their defaults.

    Raises:
        UserError: for a memory without a formula, an unknown option, or `reproject` where there is
            no window.
    """
    if memory not in FORMULAS:
        raise unknown_name("memory with a formula", memory, FORMULAS)
    defaults = options_of(memory)
    for option in options:
        if option not in defaults:
            raise unknown_name(f"option of {memory}", option, defaults)
    settings = defaults | options
    terms = FORMULAS[memory](settings)
    if reproject:
        if memory not in ("transformer", "transformer_xl", "gtrxl", "rezero"):
            raise UserError(f"{memory} has no one window to project again")
        terms = [t for t in terms if t.what != "their keys and values"]
        norm = settings.get("norm", "none") == "before"
        terms += repeated(reprojection_terms(norm=norm), "L")
    return Formula(tuple(terms), _sizes(input_size, settings, readings))


def _sizes(input_size: int, options: Options, readings: int) -> dict[str, int]:
    """Every letter that this memory's options give a value."""
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
    """What one `Layer` has around its attention: gates, feed-forward net and norms."""
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
    attention = window_terms(relative=False, norm=options["norm"] == "before")
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
    layer = _window_layer(options, norm="none", gate=options["gate"], weight=True)
    return _embedding(options) + repeated(layer, "L")


def _universal(options: Options) -> list[Term]:
    """A block that is read N times; its inputs are written into all X rings afterwards.

    `multiply_adds` knows no number of trips and counts one reading, N = 1.
    """
    norm = options["norm"]
    weight = options["residual_weight"]
    layer = _window_layer(options, norm=norm, gate=options["gate"], weight=weight)
    windows = [t for t in layer if t.what in ("stored inputs", "their keys and values")]
    others = [t for t in layer if t.kind in ("products", "elementwise", "shared")]
    held = [t for t in layer if t.kind in ("floats", "integers") and t not in windows]
    gates = [t for t in held if t.what == "gates"]
    counters = [t for t in held if t.what != "gates"]
    writing = [term("products", "keys and values of all readings", 2, "d H d_h")]
    if norm == "before":
        writing.append(term("elementwise", "norm of all readings", 3, "d"))
    halting = [term("elementwise", "blend", 2 if options["blend"] == "running" else 1, "d")]
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
        *repeated(gates, "L"),
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
    "universal": _universal,
    "integrated": _universal,
    "linear_transformer": lambda o: _stack(linear_terms(norm=o["norm"] == "before"), o),
    "relit": lambda o: _stack(relit_terms(decay=o["decay"], query=o["query"]), o),
    "arelit": lambda o: _stack(arelit_terms(), o),
}
"""Name of a memory to the terms of its step, a function of all its options."""
