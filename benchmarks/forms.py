"""The cost of a chunk in each form of computing ReLiT and AReLiT: multiply-adds, counted.

    python -m benchmarks.forms --output results/forms

It counts one layer's attention at the sizes of Pramanik (2023), Table A.2, with its products of
weights, which are the same in every form. The kernel computes what `xla` counts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, get_args

import equinox as eqx
import jax
from benchmarks.measured import publish, redrawn
from benchmarks.options import described
from benchmarks.plans import ending_as_commands

from clew.errors import UserError
from clew.lab.costs.count import multiply_adds, state_size
from clew.lab.studies.tmaze.models import PublishedReLiT
from clew.memory.arelit import AReLiT
from clew.memory.kernels import Form
from clew.memory.relit import ReLiT
from clew.report.document import Measured, tabulate

SIZES = {"hidden_size": 128, "num_layers": 1, "num_heads": 4, "head_size": 64, "eta": 4}
MEMORIES: dict[str, Callable[..., Any]] = {
    "relit": ReLiT,
    "relit, joint": partial(PublishedReLiT, decay="joint"),
    "arelit": AReLiT,
}
LENGTHS = (256, 8192)


class FormCost(NamedTuple):
    """One form of one memory, for one observation of a chunk."""

    memory: str
    form: str
    """a `Form`, or "step", the form for acting"""
    length: int
    products: float
    """multiply-adds in matrix products"""
    elementwise: float
    """elementwise multiply-adds"""
    state: int
    """floats of a state; the definition updates them at every step"""


def form_costs(lengths: Sequence[int] = LENGTHS) -> list[FormCost]:
    """Counts of every form at every length, from the traced programs; nothing is compiled."""
    found = []
    for label, memory in MEMORIES.items():
        for form in ("step", *get_args(Form)):
            if form == "kernel":
                continue
            try:
                attention = _attention(memory, form)
            except UserError:  # a form that this memory does not have
                continue
            for length in lengths[:1] if form == "step" else lengths:
                count = None if form == "step" else length
                work = multiply_adds(attention, SIZES["hidden_size"], length=count)
                steps, floats = count or 1, state_size(attention).floats
                each = (work.products / steps, work.elementwise / steps)
                found.append(FormCost(label, form, steps, *each, floats))
    return found


def document(costs: Sequence[FormCost]) -> Measured:
    """The counts as a table, `forms.md` and `forms.json`."""
    rows = [
        [
            cost.memory,
            cost.form,
            f"{cost.length:,}",
            f"{cost.products:,.0f}",
            f"{cost.elementwise:,.0f}",
            f"{cost.state:,}",
        ]
        for cost in costs
    ]
    columns = ("", "form", "steps", "in products", "elementwise", "state size (floats)")
    note = (
        "Multiply-adds per observation, forward, of one layer's attention, including its products "
        "with weights; counted from the program. The kernel's are those of xla."
    )
    title = "Ways to compute a chunk, 4 heads of 64, eta = 4"
    table = tabulate("forms", title, columns, rows, note)
    return Measured("forms", {"costs": costs}, [table])


def _attention(memory: Callable[..., Any], form: str) -> Any:
    """One layer's attention, as shapes alone."""
    backend = "xla" if form == "step" else form

    def make(key: jax.Array) -> Any:
        return memory(16, key=key, backend=backend, **SIZES)

    return eqx.filter_eval_shape(make, jax.random.key(0)).layers[0].attention


def main() -> None:
    """Counts, prints and writes."""
    parser = described(__doc__, draws=True)
    parser.add_argument("--output", default="", help="write the table and JSON here")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args()
    with ending_as_commands():
        if given.redraw:
            found = redrawn(document, given.output, "forms", FormCost)
        else:
            found = document(form_costs())
        publish(found, given.output, as_json=given.json)


if __name__ == "__main__":
    main()
