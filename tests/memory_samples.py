"""Small memories with no parameter at its initial value, for the tests of all memories."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.memory import MEMORIES, AbstractMemory, make_memory, options_among
from clew.names import find
from clew.run.config import TrainConfig, config_from_json
from slow_cases import fast_only

INPUT_SIZE = 5

# ReLiT's weights are normal: orthogonal ones are so large, at this size, that rounding matters.
# AReLiT's gates are half open, so that much is forgotten within a few steps. SHM has so many
# addresses that its matrix's factors are 1 on average; with few it overflows without observations.
SMALL: dict[str, dict[str, Any]] = {
    "none": {"hidden_size": 12},
    "position_mlp": {"hidden_size": 12, "encoding_size": 7},
    "frame_stack": {"hidden_size": 12, "frames": 8},
    "elman": {"hidden_size": 12},
    "ind_rnn": {"hidden_size": 12, "longest": 64},
    "lmu": {"hidden_size": 12, "order": 5, "theta": 8},
    "lstm": {"hidden_size": 12},
    "gru": {"hidden_size": 12},
    "transformer": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "window": 5},
    "transformer_xl": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "window": 5},
    "gtrxl": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "window": 5},
    "rezero": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "window": 5},
    "universal": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "window": 5, "max_steps": 3},
    "integrated": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "window": 5, "max_steps": 3},
    "linear_transformer": {"hidden_size": 12, "num_heads": 2, "head_size": 4},
    "relit": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "eta": 2, "init": "lecun"},
    "arelit": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "eta": 2, "r": 3, "chrono": 0},
    "min_gru": {"hidden_size": 12},
    "hybrid": {
        "hidden_size": 12,
        "layers": ("min_gru", "attention"),
        "layer_options": {"attention": {"num_heads": 2, "head_size": 4, "window": 5}},
    },
    "ffm": {"hidden_size": 12, "trace_size": 5, "context_size": 3, "longest": 20},
    "shm": {"hidden_size": 12, "memory_size": 5, "addresses": 32, "period": 200},
    "min_lstm": {"hidden_size": 12},
    "lru": {"hidden_size": 12},
    "rg_lru": {"hidden_size": 12},
    "s5": {"hidden_size": 12, "num_blocks": 2},
    "gated_delta_net": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "init": "lecun"},
    "delta_product": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "init": "lecun"},
    "mamba2": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "state_size": 3},
    "retention": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "shortest": 4},
    "gla": {"hidden_size": 12, "num_heads": 2, "head_size": 4, "key_size": 3, "rank": 2},
    "rwkv7": {"hidden_size": 12, "num_heads": 2, "head_size": 8, "rank": 3, "init": "lecun"},
    "mlstm": {"hidden_size": 12, "num_heads": 2, "head_size": 4},
    "slstm": {"hidden_size": 12, "num_heads": 2, "head_size": 4},
}

LAWS_AT_ONCE = ("none", "elman", "gru", "gtrxl", "arelit", "min_gru", "lru", "gated_delta_net")
"""One memory of every way through time: cells, windows, sums with decay, real and complex diagonal
states, delta rules. The laws of the others are among the slow tests; every fast run compares them
with their oracles, by step and chunk."""

DIFFERENT = ("none", "gru", "gtrxl", "arelit", "lru")
"""One memory of every kind of state, for tests that use a memory without testing the memory."""


def every_memory() -> list[Any]:
    """The names of all memories for a test that compiles much; `LAWS_AT_ONCE` are fast."""
    return fast_only(MEMORIES, *LAWS_AT_ONCE)


def variant(name: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The class that has these options of a memory now, its own or a study's, and the options."""
    saved = TrainConfig().to_json() | {"memory": name, "memory_options": options}
    config = config_from_json(saved)
    return find("memory", config.memory, MEMORIES), config.memory_options


def sample(name: str, num_layers: int = 2, seed: int = 0, **options: Any) -> AbstractMemory:
    """The small memory called `name`, its parameters moved away from their initial values.

    Biases and norms start at 0 and 1, which hides many mistakes. Biases become positive, so that
    enough relus are active: where keys are dead a_t is 0 / epsilon, and rounding matters.
    """
    key, random = jax.random.key(seed), np.random.default_rng(seed)
    small = {"hidden_size": 12, "num_layers": num_layers} | SMALL.get(name, {})
    options = options_among(name, small) | options
    kind, options = variant(name, options)
    memory = make_memory(kind, input_size=INPUT_SIZE, key=key, **options)

    def moved(path: tuple, leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf
        noise = 0.2 * random.standard_normal(leaf.shape).astype(np.float32)
        bias = "bias" in jax.tree_util.keystr(path[-1:])
        # In NumPy: JAX would compile a sum for every shape.
        return jnp.asarray(np.asarray(leaf) + noise + np.float32(0.5 if bias else 0.0))

    return jax.tree_util.tree_map_with_path(moved, memory)


def episodes(time: int, seed: int = 0, rate: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Random observations [time, in] and start flags [time], without one at time 0."""
    random = np.random.default_rng(seed)
    xs = random.standard_normal((time, INPUT_SIZE)).astype(np.float32)
    starts = random.random(time) < rate
    starts[0] = False
    return xs, starts


@pytest.fixture(scope="module", autouse=True)
def quick_compilation() -> Iterator[None]:
    """Compiles with little optimisation: a third of the time, the same mathematics.

    Programs compiled this way are dropped with it: JAX would reuse them in later tests.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    if not before:
        jax.clear_caches()
