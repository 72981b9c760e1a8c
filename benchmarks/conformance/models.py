"""Every tested model, by name."""

from benchmarks.conformance import jax_libraries, torch_libraries
from benchmarks.conformance.model import Model

MODELS: dict[str, Model] = jax_libraries.models() | torch_libraries.models()
