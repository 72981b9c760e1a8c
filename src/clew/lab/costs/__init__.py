"""What a memory costs: counted from its program, from formulas, as compiled, and as measured."""

from clew.lab.costs.count import Arithmetic, StateSize, multiply_adds, parameters, state_size
from clew.lab.costs.formulas import FORMULAS, SYMBOLS, Formula, Term, formula

__all__ = [
    "FORMULAS",
    "SYMBOLS",
    "Arithmetic",
    "Formula",
    "StateSize",
    "Term",
    "formula",
    "multiply_adds",
    "parameters",
    "state_size",
]
