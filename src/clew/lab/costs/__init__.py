"""What a memory costs: counted from its program, as compiled, and as measured."""

from clew.lab.costs.count import Arithmetic, StateSize, multiply_adds, parameters, state_size

__all__ = ["Arithmetic", "StateSize", "multiply_adds", "parameters", "state_size"]
