"""The costs of a memory: counted from its program, as compiled, and as measured."""

from clew.lab.costs.count import Arithmetic, StateSize, multiply_adds, state_size
from clew.memory.base import count_floats as parameters

__all__ = ["Arithmetic", "StateSize", "multiply_adds", "parameters", "state_size"]
