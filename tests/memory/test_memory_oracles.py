"""Every memory, and every option that changes its mathematics, equals a plain transcription."""

import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.memory import MEMORIES, AbstractMemory, scan_steps
from memory_samples import episodes, quick_compilation, sample
from oracles import universal
from slow_cases import fast_only

__all__ = ["quick_compilation"]

TIME = 29
TOLERANCE = 1e-5  # relative; single precision against double, over two layers and 29 steps

INTEGRATED_AS_CODED = {
    "hidden_size": 5,
    "embedding": False,
    "gate": "temporal_gru",
    "inner_residual": True,
    "crossed_states": True,
    "coordinates": False,
    "blend": "running",
    "unreached": "zero",
    "gradient": "current",
    "init": "uniform",
}

# Options of the memory; those that its oracle cannot infer from the weights are passed on.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in MEMORIES),
    ("frame_stack", {"num_layers": 1, "frames": 40}),
    ("elman", {"activation": "relu", "init": "orthogonal"}),
    ("ind_rnn", {"activation": "tanh", "num_layers": 3}),
    ("gru", {"num_layers": 3}),
    ("transformer", {"norm": "before", "attention_bias": True, "ffn_size": 7}),
    ("transformer_xl", {"hidden_size": 11, "window": 1, "num_heads": 3}),
    ("gtrxl", {"gate": "residual", "attention_bias": False, "ffn_size": 7}),
    ("gtrxl", {"query_norm": False, "window": 40}),
    ("gtrxl", {"banded": False}),
    ("lstm", {"num_layers": 1, "init": "uniform", "all_biases": True}),
    ("gru", {"num_layers": 1, "init": "uniform", "all_biases": True}),
    ("gtrxl", {"gate": "temporal_gru", "norm": "around", "inner_residual": True}),
    ("gtrxl", {"hidden_size": 5, "embedding": False, "gate": "gru", "norm": "none"}),
    ("gtrxl", {"gate": "gru", "norm": "after", "gradient": "current"}),
    ("rezero", {"hidden_size": 5, "embedding": False, "inner_residual": True, "window": 40}),
    ("universal", {"num_layers": 1, "max_steps": 6, "coordinates": False}),
    ("universal", {"blend": "running", "unreached": "zero", "max_steps": 2, "threshold": 0.5}),
    ("universal", {"halting": False, "norm": "before", "window": 40}),
    ("integrated", {"num_layers": 1, **INTEGRATED_AS_CODED}),
    ("linear_transformer", {"gate": "residual", "norm": "after", "epsilon": 1e-2}),
    ("linear_transformer", {"summation": "compensated"}),
    ("lmu", {"num_layers": 2, "order": 16, "theta": 1, "init": "orthogonal"}),
    ("ffm", {"gate": "gru", "trace_size": 1, "context_size": 1}),
    ("shm", {"gate": "gru", "addresses": 2, "period": 3, "epsilon": 1e-2}),
    ("min_gru", {"gate": "gru", "candidate": "positive", "inner_size": 7}),
    ("min_lstm", {"normalised": False, "gate": "gru"}),
    ("lru", {"state_size": 7, "activation": "none"}),
    ("rg_lru", {"conv": 0, "inner_size": 7}),
    ("rg_lru", {"num_blocks": 3}),
    ("s5", {"residual_weight": True}),
    ("s5", {"bounded": False, "num_blocks": 3, "state_size": 18, "activation": "full_glu"}),
    ("gated_delta_net", {"conv": 0, "decay": "none", "ffn_size": 7}),
    ("gated_delta_net", {"negative_eigenvalues": True}),
    ("delta_product", {"num_householder": 3, "conv": 0}),
    ("mamba2", {"conv": 0, "state_size": 5}),
    ("retention", {"rotation": False, "head_size": 3, "shortest": 1}),
    ("gla", {"chrono": 64, "key_size": 5}),
    ("rwkv7", {"num_heads": 3, "head_size": 1, "gate": "gru"}),
    ("mlstm", {"conv": 0, "chrono": 8}),
    ("slstm", {"conv": 0, "forget": "exp"}),
    ("relit", {"decay": "joint", "query": "double", "embedding_relu": False, "eta": 3}),
    ("arelit", {"frequencies": "printed", "scale": "printed", "r": 4, "epsilon": 1e-2}),
    ("arelit", {"frequencies": "code", "scale": "code", "tick": "carried", "r": 2}),
    ("arelit", {"frequencies": "code", "scale": "derived", "r": 1, "eta": 1}),
    ("arelit", {"frequencies": "half_wave", "scale": "printed", "tick": "carried", "r": 2}),
    ("arelit", {"frequencies": "full_wave", "r": 3}),
    ("arelit", {"frequencies": "odd_wave", "scale": "code", "tick": "carried", "r": 2}),
    # Other combinations of options that appear above one by one, or in another memory's layers.
    ("none", {"num_layers": 3}),
    ("position_mlp", {"num_layers": 3, "encoding_size": 1}),
    ("frame_stack", {"num_layers": 1, "frames": 1}),
    ("lstm", {"num_layers": 1, "init": "lecun", "forget_bias": 1.0}),
    ("transformer", {"hidden_size": 11, "window": 40}),
    ("transformer_xl", {"norm": "before", "attention_bias": True, "ffn_size": 7}),
    ("transformer_xl", {"hidden_size": 5, "embedding": False, "inner_residual": True}),
    ("transformer_xl", {"gradient": "current", "init": "uniform"}),
    ("rezero", {"gate": "gru", "attention_bias": True, "gradient": "current"}),
    ("rezero", {"gate": "temporal_gru", "ffn_size": 7}),
    ("universal", {"gate": "temporal_gru", "norm": "none", "num_layers": 1}),
    ("integrated", {"hidden_size": 5, "embedding": False, "blend": "running", "max_steps": 1}),
    ("linear_transformer", {"gate": "gru", "norm": "after"}),
    ("min_lstm", {"candidate": "positive", "inner_size": 7}),
    ("lru", {"activation": "gelu", "gate": "gru"}),
    ("delta_product", {"num_householder": 1, "decay": "none", "negative_eigenvalues": False}),
    ("slstm", {"chrono": 8}),
    ("mamba2", {"gate": "gru", "residual_weight": True}),
    ("relit", {"decay": "joint", "ffn_size": 7, "epsilon": 1e-2}),
    ("relit", {"query": "double", "epsilon": 1e-10}),
    ("arelit", {"frequencies": "printed", "scale": "derived", "r": 1}),
    ("arelit", {"frequencies": "printed", "scale": "code", "r": 2}),
    ("arelit", {"frequencies": "code", "scale": "code", "tick": "carried", "r": 7}),
    ("arelit", {"frequencies": "code", "scale": "printed", "r": 4}),
    ("arelit", {"frequencies": "half_wave", "scale": "code", "r": 1, "ffn_size": 7}),
    ("arelit", {"frequencies": "full_wave", "scale": "printed", "tick": "carried", "r": 4}),
    ("arelit", {"frequencies": "odd_wave", "r": 3}),
]
FOR_THE_ORACLE = {
    "transformer": ("norm",),
    "transformer_xl": ("norm", "embedding", "inner_residual"),
    "gtrxl": ("gate", "norm", "query_norm", "banded", "embedding", "inner_residual"),
    "rezero": ("gate", "embedding", "inner_residual"),
    "universal": tuple(universal.DEFAULTS),
    "integrated": tuple(universal.DEFAULTS),
    "linear_transformer": ("gate", "norm"),
    "relit": ("decay", "query", "embedding_relu"),
    "arelit": ("frequencies", "scale", "tick", "r"),
}


@eqx.filter_jit
def both_ways(
    memory: AbstractMemory, xs: jax.Array, starts: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The outputs by `unroll` and by `step`."""
    state = memory.init_state()
    return memory.unroll(state, xs, starts)[1], scan_steps(memory, state, xs, starts)[1]


def largest_deviation(actual: jax.Array, expected: np.ndarray) -> float:
    """Relative to 1 + the largest expected output."""
    return float(np.max(np.abs(np.asarray(actual) - expected)) / (1 + np.max(np.abs(expected))))


@pytest.mark.parametrize(
    ("name", "options"),
    fast_only(VARIANTS, *((name, {}) for name in MEMORIES)),
    ids=str,
)
def test_a_memory_is_what_its_paper_says(name: str, options: dict[str, Any]) -> None:
    """`unroll` and `step` give the numbers of the naive transcription, starts included."""
    layers = 1 if options else 2  # one is enough to test an option, and compiles faster
    memory = sample(name, **{"num_layers": layers, **options})
    xs, starts = episodes(TIME, seed=3)
    given = {key: options[key] for key in FOR_THE_ORACLE.get(name, ("gate",)) if key in options}
    if name == "arelit":
        given.setdefault("r", 3)
    expected = importlib.import_module(f"oracles.{name}").run(memory, xs, starts, **given)
    unrolled, stepped = both_ways(memory, jnp.asarray(xs), jnp.asarray(starts))
    assert starts.any()
    assert largest_deviation(unrolled, expected) < TOLERANCE
    if options.get("banded", True):
        assert largest_deviation(stepped, expected) < TOLERANCE
