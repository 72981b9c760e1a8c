"""`clew check`: tests a model of the library, or your own, against the laws."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from clew.cli.parse import parse
from clew.cli.tables import log, print_json, print_table
from clew.errors import UserError, call_own, parameters_of
from clew.names import find, is_reference
from clew.output import say

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from clew.memory.base import AbstractMemory
    from clew.memory.laws import LawReport

ABOUT = """Checks the laws that every memory must obey, for values and gradients, and shows the
largest deviation found for each. Without a name it checks every model of the library at a small
size. Exits with 1 if a law is broken."""

SMALL = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "head_size": 8,
    "window": 8,
    "ffn_size": 16,
}
"""Default sizes for the laws, for models that have such an option."""
SHARED_BY_LAYERS = ("hidden_size", "num_layers")
"""Options that a hybrid passes to its layers."""


@dataclass(frozen=True)
class CheckCommand:
    """Options of `clew check`."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[NAME]")] = ""
    """A model's name, or module:Class for your own, as for clew train --memory. A function without
    a parameter input_size is called with the options alone."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the model."""
    input_size: int = 5
    """Numbers in one observation."""
    lengths: tuple[int, ...] = (1, 7, 64, 321)
    """Lengths of the chunks to unroll, in steps."""
    precision: Literal["float32", "float64"] = "float32"
    """Floating-point precision; with float64 no deviation is due to rounding."""
    json: bool = False
    """Print JSON instead of a table."""


def main(args: list[str]) -> int:
    """Checks, and prints a table of laws."""
    command = parse(CheckCommand, args, command="check", about=ABOUT)
    if command.options and not command.what:
        raise UserError("--options needs the NAME of a model")
    from clew.memory import MEMORIES  # start: JAX takes a second
    from clew.memory.laws import check  # start: JAX takes a second

    names = [command.what] if command.what else list(MEMORIES)
    reports = {}
    for name in names:
        memory = make(name, command.input_size, command.options)
        if not command.json:
            log(f"checking {name}")
        reports[name] = check(
            memory, lengths=command.lengths, precision=command.precision, raise_on_failure=False
        )
        if command.what and not command.json and reports[name].passed:
            print(_replay(memory))
    if command.json:
        print_json({name: summary(report) for name, report in reports.items()})
    else:
        _show(reports)
    return 0 if all(report.passed for report in reports.values()) else 1


def make(what: str, input_size: int, options: dict[str, Any]) -> "AbstractMemory":
    """The memory of a model's name or of module:Class, at a small size unless sizes are given.

    Raises:
        UserError: if there is no such model, module or class, if it makes no memory, or if
            checking it needs more RAM than this machine has.
    """
    import equinox as eqx  # start: JAX takes a second
    import jax  # start: JAX takes a second

    from clew.memory import MEMORIES, make_memory, options_among  # start: JAX takes a second
    from clew.memory.base import AbstractMemory  # start: JAX takes a second

    kind = find("memory", what, MEMORIES)
    if "input_size" not in parameters_of(kind):
        memory = call_own(what, kind, **options)  # a function that knows its sizes
        if not isinstance(memory, AbstractMemory):
            raise UserError(f"{what} returned {type(memory).__name__}, expected an AbstractMemory")
        return memory
    small = options_among(kind, SMALL) | _small_layers(kind, options)
    name = kind if is_reference(what) else what

    def build(key: "PRNGKeyArray") -> "AbstractMemory":
        return make_memory(name, input_size=input_size, key=key, **(small | options))

    key = jax.random.key(0)
    _require_memory(eqx.filter_eval_shape(build, key))
    return build(key)


def _small_layers(kind: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that make the layers of a hybrid small, unless they are given."""
    from clew.memory import options_among, options_of  # start: JAX takes a second
    from clew.memory.hybrid import Hybrid  # start: JAX takes a second

    if kind is not Hybrid or "layer_options" in options:
        return {}
    sizes = {name: size for name, size in SMALL.items() if name not in SHARED_BY_LAYERS}
    layers = options.get("layers", options_of(kind)["layers"])
    small = {name: options_among(made, sizes) for name, made in Hybrid.kinds().items()}
    return {"layer_options": {name: small[name] for name in layers if name in small}}


def _require_memory(shapes: "AbstractMemory") -> None:
    """Refuses a memory if its check, with the gradients of each case, would not fit into RAM."""
    from clew.lab.costs import parameters, state_size  # start: JAX takes a second
    from clew.memory.laws.cases import CASES  # start: JAX takes a second
    from clew.run.machine import require_memory  # start: JAX takes a second

    count, state = parameters(shapes), state_size(shapes)
    require_memory(
        4 * (1 + CASES) * count + CASES * state.bytes,
        f"{CASES} cases with {count:,} gradients and a state of {state.floats:,} floats each",
    )


def summary(report: "LawReport") -> dict[str, Any]:
    """A report as JSON values."""
    from clew.memory.laws import LAWS  # start: JAX takes a second

    laws = {}
    for law in LAWS:
        value, gradient = report.largest(law)
        laws[law] = {"cases": len(report.of(law)), "value": value, "gradient": gradient}
    failures = [str(failure) for failure in report.failures]
    found = {"passed": report.passed, "laws": laws, "failures": failures}
    return found | {"warnings": report.warnings}


def _show(reports: "dict[str, LawReport]") -> None:
    from clew.memory.laws import LAWS  # start: JAX takes a second

    rows = []
    for name, report in reports.items():
        broken = {failure.law for failure in report.failures}
        found = {law: f"{max(report.largest(law)):.0e}" if report.of(law) else "-" for law in LAWS}
        cells = ["BROKEN" if law in broken else text for law, text in found.items()]
        rows.append([name, str(len(report.cases)), *cells])
    note = "largest relative deviation of outputs and gradients; the laws:\n" + "\n".join(
        f"  {law:<10} {text}" for law, text in LAWS.items()
    )
    print_table("", ["", "cases", *LAWS], rows, note)
    for name, report in reports.items():
        for failure in report.failures:
            say(f"{name} breaks {failure}")
        for warning in report.warnings:
            say(f"warning: {name}: {warning}")


def _replay(memory: "AbstractMemory") -> str:
    """What matters about a memory to a learner with replay."""
    from clew.lab.costs import state_size  # start: JAX takes a second
    from clew.memory.laws.replay import STEP, staleness, stored_floats  # start: as JAX

    off = ", ".join(f"{value:.2%} after {n}" for n, value in staleness(memory).items())
    size = state_size(memory)
    return (
        f"replay stores {stored_floats(memory):,} of the state's {size.floats + size.integers:,} "
        f"numbers; a replayed sequence is off by {off} updates of {STEP:.1%} of each parameter"
    )
