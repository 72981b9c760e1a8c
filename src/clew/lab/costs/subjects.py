"""What can be accounted for: whole memories, and the attention of one layer by itself."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from clew.errors import UserError
from clew.lab.costs.account import Subject
from clew.lab.costs.attention_terms import (
    arelit_terms,
    linear_terms,
    relit_terms,
    reprojection_terms,
    window_terms,
)
from clew.lab.costs.formulas import FORMULAS, formula
from clew.lab.costs.reproject import Reprojecting
from clew.lab.costs.terms import Formula
from clew.memory import make_memory, options_of

REPROJECTED = ", re-projected"
"""What the name of a memory ends in if it projects its whole window at every step."""


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
"""Those of Parisotto et al. (2020), with the 8 heads of section 3.3.1."""
TMAZE = Setting("Table 5.1", "Pramanik (2023), Table A.2", 128, 4, 64, 256, 4, 1)
SETTINGS = (PARISOTTO, TMAZE)


def memory_subjects(
    cases: Mapping[str, tuple[str, dict[str, Any]]], input_size: int
) -> list[Subject]:
    """Memories by name, each GTrXL followed by itself without its key/value cache."""
    subjects = []
    for name, (memory, options) in cases.items():
        subjects.append(_whole(name, memory, input_size, options, reproject=False))
        if memory == "gtrxl":
            subjects.append(_whole(name + REPROJECTED, memory, input_size, options, reproject=True))
    return subjects


def _whole(
    name: str, memory: str, input_size: int, options: dict[str, Any], *, reproject: bool
) -> Subject:
    def make(key: jax.Array) -> Any:
        made = make_memory(memory, input_size=input_size, key=key, **options)
        return Reprojecting(made) if reproject else made

    found = None
    if memory in FORMULAS:
        found = formula(memory, input_size, reproject=reproject, **options)
    return Subject(name, make, input_size, found)


def attention_subjects(setting: Setting) -> list[Subject]:
    """The attention of one layer, all heads and its output product, of five kinds."""
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

    return Subject(name, make, size, attention_formula(memory, setting, reproject=reproject))


def attention_formula(memory: str, setting: Setting, *, reproject: bool = False) -> Formula:
    """The terms of one layer's attention with all its heads, and nothing around it."""
    terms = {
        "gtrxl": lambda: window_terms(relative=True, norm=True),
        "linear_transformer": lambda: linear_terms(norm=True),
        "relit": lambda: relit_terms(decay="separate", query="single"),
        "arelit": arelit_terms,
    }[memory]()
    if reproject:
        terms = [t for t in terms if t.what != "their keys and values"]
        terms += reprojection_terms(norm=True)
    sizes = {
        "d": setting.hidden_size,
        "H": setting.num_heads,
        "d_h": setting.head_size,
        "S": setting.window + 1,
        "eta": setting.eta,
        "V": setting.r + 1,
        "K": setting.r + 1,
    }
    return Formula(tuple(terms), sizes)


def sized(
    cases: Mapping[str, tuple[str, dict[str, Any]]], sizes: Mapping[str, Any]
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Cases with sizes of the user's, each given to the memories that have such an option.

    Raises:
        UserError: for a size that none of them has.
    """
    for size in sizes:
        if not any(size in options_of(memory) for memory, _ in cases.values()):
            raise UserError(f"none of {_names(list(cases))} has an option {size!r}")
    return {
        name: (memory, options | {k: v for k, v in sizes.items() if k in options_of(memory)})
        for name, (memory, options) in cases.items()
    }


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
