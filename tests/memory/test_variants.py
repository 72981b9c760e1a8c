"""Variants of memories beside the studies equal the memories if no option differs."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from clew.cli.models import argument_docs
from clew.memory import MEMORIES, make_memory, options_of
from clew.run.config import TrainConfig, config_from_json
from memory_samples import SMALL, quick_compilation, variant
from slow_cases import fast_only

__all__ = ["quick_compilation"]

# For each memory an option that only its variant has, at the value at which it changes nothing.
NOTHING: dict[str, dict[str, Any]] = {
    "transformer_xl": {"inner_residual": False},
    "gtrxl": {"banded": True},
    "rezero": {"gate": "residual"},
    "universal": {"blend": "mean"},
    "integrated": {"unreached": "copy"},
}


@pytest.mark.parametrize("name", fast_only(NOTHING, "gtrxl", "universal"))
def test_a_variant_without_its_differences_is_the_memory(name: str) -> None:
    """Bit for bit: the initial weights, and the outputs of a chunk."""
    kind, options = variant(name, SMALL[name] | NOTHING[name])
    assert kind is not MEMORIES[name] and NOTHING[name].keys() <= options.keys()
    key, found = jax.random.key(3), []
    for made in (
        make_memory(kind, input_size=5, key=key, **options),
        make_memory(name, input_size=5, key=key, **SMALL[name]),
    ):
        xs = jax.random.normal(jax.random.key(4), (7, 5))
        state, ys = eqx.filter_jit(made.unroll)(made.init_state(), xs, np.arange(7) == 4)
        found.append(jax.tree.leaves((eqx.filter(made, eqx.is_array), state, ys)))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", NOTHING)
def test_results_of_a_variant_keep_the_name_of_the_memory(name: str) -> None:
    """An old run describes itself in the same way when it is read now."""
    old = TrainConfig(memory="none").to_json() | {"memory": name, "memory_options": NOTHING[name]}
    config = config_from_json(old)
    assert config.memory.startswith("clew.lab.studies.")
    assert config.identity()["memory"] == name
    assert config.identity()["memory_options"] == NOTHING[name]
    assert config_from_json(config.to_json()) == config


@pytest.mark.parametrize("name", MEMORIES)
def test_every_option_is_described(name: str) -> None:
    """In the docstring of the memory, or of the class to which shared options are passed."""
    assert options_of(name).keys() <= argument_docs(MEMORIES[name]).keys()
