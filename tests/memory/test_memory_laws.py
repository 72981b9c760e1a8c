"""The laws of design, for every memory: values and gradients, any pattern of starts.

There is one `check` per memory, because compiling dominates its cost; it makes some hundred
comparisons, each named by law, length and pattern in a failure's message. The number of cases and
the largest deviation for each law are printed at the end of the session.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import pytest

from clew.cli.check import make
from clew.memory import MEMORIES, make_memory
from clew.memory.laws import LAWS, LawReport, check
from clew.memory.laws.interface import require_interface
from memory_samples import INPUT_SIZE, every_memory, quick_compilation, sample, variant

__all__ = ["quick_compilation"]

# Odd and even, multiples of the window and of 64 and their neighbours, and longer than any block.
LENGTHS = (1, 2, 7, 10, 63, 64, 257, 320)

# Options whose code takes another path through time than the defaults.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("gtrxl", {"query_norm": False, "window": 70}),
    ("gtrxl", {"gate": "residual", "attention_bias": False, "window": 1}),
    ("transformer", {"norm": "before", "attention_bias": True, "window": 70}),
    ("transformer_xl", {"gradient": "current", "inner_residual": True}),
    ("gtrxl", {"gate": "temporal_gru", "norm": "around", "gradient": "current"}),
    ("universal", {"gate": "temporal_gru", "norm": "none"}),
    ("universal", {"unreached": "zero", "blend": "running", "gradient": "current"}),
    ("universal", {"halting": False}),
    ("integrated", {"gate": "temporal_gru", "crossed_states": True, "unreached": "zero"}),
    ("integrated", {"gate": "temporal_gru", "crossed_states": True, "gradient": "current"}),
    ("linear_transformer", {"norm": "after", "gate": "residual"}),
    ("linear_transformer", {"summation": "compensated"}),
    ("relit", {"decay": "joint", "query": "double"}),
    ("frame_stack", {"frames": 70}),
    ("elman", {"activation": "relu"}),
    ("ind_rnn", {"activation": "tanh"}),
    ("ffm", {"backend": "associative"}),
    ("shm", {"backend": "associative", "period": 1000}),
    ("min_gru", {"backend": "associative", "chrono": 64}),
    ("min_lstm", {"backend": "associative", "chrono": 64}),
    ("min_lstm", {"normalised": False, "candidate": "positive"}),
    ("lru", {"backend": "associative", "activation": "none"}),
    ("rg_lru", {"backend": "associative", "chrono": 64}),
    ("rg_lru", {"conv": 0}),
    ("s5", {"backend": "associative", "bounded": False}),
    ("gated_delta_net", {"backend": "xla", "conv": 0}),
    ("gated_delta_net", {"backend": "chunkwise"}),
    ("gated_delta_net", {"decay": "none"}),
    ("delta_product", {"backend": "xla", "num_householder": 3}),
    ("mamba2", {"backend": "xla", "conv": 0}),
    ("mamba2", {"backend": "chunkwise"}),
    ("retention", {"rotation": False}),
    ("retention", {"backend": "chunkwise"}),
    ("retention", {"backend": "xla", "shortest": 1}),
    ("gla", {"backend": "xla"}),
    ("gla", {"backend": "chunkwise"}),
    ("gla", {"chrono": 64}),
    ("rwkv7", {"backend": "xla"}),
    ("rwkv7", {"backend": "chunkwise"}),
    ("mlstm", {"backend": "xla", "conv": 0}),
    ("mlstm", {"backend": "chunkwise"}),
    ("mlstm", {"chrono": 64}),
    ("slstm", {"forget": "exp", "conv": 0}),
    ("lstm", {"backend": "xla", "all_biases": True}),
    ("gru", {"backend": "xla", "all_biases": True}),
    ("gtrxl", {"backend": "xla"}),
    ("relit", {"backend": "xla"}),
    ("arelit", {"backend": "xla"}),
    ("arelit", {"chrono": 256}),
    ("relit", {"backend": "chunkwise", "query": "double"}),
    ("relit", {"backend": "associative"}),
    ("relit", {"backend": "associative", "decay": "joint"}),
    ("arelit", {"backend": "chunkwise"}),
    ("arelit", {"backend": "chunkwise", "frequencies": "odd_wave", "r": 2}),
    ("arelit", {"backend": "associative", "frequencies": "code", "r": 2, "tick": "carried"}),
    ("arelit", {"frequencies": "printed", "scale": "printed", "r": 4}),
    ("arelit", {"frequencies": "code", "scale": "code", "r": 7}),
    ("arelit", {"frequencies": "code", "scale": "code", "r": 2, "tick": "carried"}),
    ("arelit", {"frequencies": "full_wave", "r": 4}),
    ("arelit", {"frequencies": "odd_wave", "r": 2}),
]


def say(report: LawReport, record: Callable[[str, object], None]) -> None:
    """Records the numbers for the end of the session, then fails if a law is broken."""
    for law in LAWS:
        record("law", (law, len(report.of(law)), *report.largest(law)))
    assert report.passed, str(report)


@pytest.mark.parametrize("name", every_memory())
def test_every_memory_obeys_the_laws(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """One layer, single precision; the tolerances are those of `check`."""
    memory = sample(name, num_layers=1)
    # Halting compiles slowly; its long chunks are among the slow tests.
    lengths = (1, 7) if memory.metric_names else (1, 7, 320)
    report = check(memory, lengths=lengths, raise_on_failure=False)
    say(report, record_property)


MEASURED = [(name, options) for name, options in VARIANTS if name in ("universal", "integrated")]


@pytest.mark.parametrize(("name", "options"), MEASURED, ids=str)
def test_what_is_measured_is_what_it_says(name: str, options: dict[str, Any]) -> None:
    """With and without halting; nothing is compiled."""
    kind, options = variant(name, options)
    build = partial(make_memory, kind, input_size=INPUT_SIZE, **options)
    require_interface(eqx.filter_eval_shape(lambda key: build(key=key), jax.random.key(0)))


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_every_memory_obeys_the_laws_as_users_check_it(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """At the sizes of `clew check`, with initial parameters and dead keys."""
    say(check(make(name, INPUT_SIZE, {}), raise_on_failure=False), record_property)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", MEMORIES)
def test_every_stack_obeys_the_laws(
    name: str, precision: Any, record_property: Callable[[str, object], None]
) -> None:
    """Two layers, both precisions; in double precision nothing can be due to rounding."""
    report = check(sample(name), lengths=LENGTHS, precision=precision, raise_on_failure=False)
    say(report, record_property)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_every_option_obeys_the_laws(
    name: str, options: dict[str, Any], record_property: Callable[[str, object], None]
) -> None:
    """In double precision."""
    report = check(
        sample(name, **options), lengths=LENGTHS, precision="float64", raise_on_failure=False
    )
    say(report, record_property)
