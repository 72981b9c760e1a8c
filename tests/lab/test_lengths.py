"""Memory of learning against the length of chunks, by XLA's own plan; and its report."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from benchmarks import lengths
from benchmarks.lengths import (
    SIZES,
    LengthsPlan,
    Row,
    compile_gradient,
    kernel_bytes,
    main,
    measure,
    subjects,
)

from clew.lab.bench.timing import estimate
from clew.memory import make_memory, options_among, scan_steps
from clew.memory.kernels import why_not
from clew.memory.kernels.linear_recurrence import ReLiTConstants, ReLiTInputs, relit_recurrence
from clew.run.machine import planned_bytes

TIME, ENVS, THREADS = 2048, 8, 2
needs_kernel = pytest.mark.skipif(bool(why_not()), reason=why_not())


@needs_kernel
def test_relits_recurrence_needs_a_twentieth_of_all_its_states() -> None:
    """Inputs, outputs and gradients of the recurrence, and the kernel's own, beside all C_t."""
    memory = make_memory("relit", input_size=16, key=jax.random.key(0), **SIZES)
    state = memory.init_state()[0].attention
    lead = (ENVS, TIME)
    inputs = ReLiTInputs(
        jax.ShapeDtypeStruct((*lead, 5, 4, 64), jnp.float32),
        jax.ShapeDtypeStruct((*lead, 3, 4, 4), jnp.float32),
        jax.ShapeDtypeStruct(lead, jnp.bool_),
        *(jax.ShapeDtypeStruct((ENVS, *x.shape), x.dtype) for x in state),
    )

    def total(products: Any, maps: Any, rest: Any, cotangent: Any) -> Any:
        read = jax.vmap(lambda x: relit_recurrence(ReLiTConstants(False, 1e-5), x)[0])
        return jnp.sum(read(ReLiTInputs(products, maps, *rest)) * cotangent)

    cotangent = jax.ShapeDtypeStruct((*lead, 4, 64), jnp.float32)
    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))
    program = gradient.lower(inputs[0], inputs[1], inputs[2:], cotangent).compile()
    held = planned_bytes(program) + kernel_bytes(memory, TIME, ENVS, THREADS)
    every_matrix = 4 * state.matrix.size * TIME * ENVS
    assert every_matrix == 2**32
    assert held <= every_matrix / 20


@needs_kernel
def test_relits_gradient_needs_a_twentieth_of_one_that_keeps_its_states() -> None:
    """For the whole memory, including its layer's gates and products."""
    memory = make_memory("relit", input_size=16, key=jax.random.key(0), **SIZES)
    program = compile_gradient(memory, TIME, ENVS, lambda m, *args: m.unroll(*args))
    kept = compile_gradient(memory, TIME, ENVS, scan_steps)
    held = planned_bytes(program) + kernel_bytes(memory, TIME, ENVS, THREADS)
    assert held <= planned_bytes(kept) / 20


@needs_kernel
def test_what_a_kernel_of_matrices_holds() -> None:
    """A state of 64 x 64 in 16 steps, one gradient, and four rows in 17; of a head per thread."""
    sizes = SIZES | {"head_size": 64}
    for name, steps in (("gated_delta_net", 256), ("delta_product", 512)):
        memory = make_memory(
            name, input_size=16, key=jax.random.key(0), **options_among(name, sizes)
        )
        held = 64 * 64 * (steps // 16 + 1) + 17 * 4 * 64
        assert kernel_bytes(memory, 256, ENVS, THREADS) == 4 * THREADS * held


def test_lengths_are_measured_by_turns() -> None:
    sizes = {"hidden_size": 4, "num_layers": 1, "num_heads": 1, "head_size": 2}
    logged: list[str] = []
    (row,) = measure(LengthsPlan((4,), 2, 2, sizes, ("linear_transformer",)), 2, logged.append)
    assert row.times_shortest[:3] == (1, 1, 1) and row.microseconds.middle > 0
    assert row.planned_bytes > 0 and row.kept_bytes > 0 and row.kernel_bytes == 0
    assert row.state_bytes == 4 * (2 * 2 + 2) * 4 * 2
    assert logged == [
        "compiling linear_transformer, chunks of 4",
        *(f"turn {n} of 2" for n in range(3)),
    ]


@pytest.mark.slow
def test_every_form_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """For memories with several forms; without the kernel if there is none."""
    plan = lengths.QUICK
    labels = [subject.label for subject in subjects(plan)]
    assert ["arelit, chunkwise", "arelit, associative", "linear_transformer"] == labels[-3:]
    monkeypatch.setattr(lengths, "why_not", lambda: "no compiler")
    without = [subject.label for subject in subjects(plan._replace(memories=("relit",)))]
    assert without == ["relit, xla", "relit, chunkwise", "relit, associative"]


def test_the_command_shows_and_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    median = estimate([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    rows = [
        Row(name, length, 2, median, median, 2**20, 2**19, 30 * 2**20, 20 * 2**20)
        for name in ("relit", "arelit")
        for length in (4, 8)
    ]
    monkeypatch.setattr(lengths, "measure", lambda plan, threads, log: rows)
    monkeypatch.setattr(lengths, "matrix_product_rate", lambda repeats: 1e11)
    assert main(["--quick", "--output", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "1.25 [1.00, 1.50]" in text and "1.0 + 0.5" in text and "20.0" in text
    assert {p.name for p in tmp_path.iterdir()} == {"lengths.json", "lengths.md", "lengths.png"}
    assert "100 GFLOP/s" in (tmp_path / "lengths.md").read_text()
    written = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.delattr(lengths, "measure")
    assert main(["--redraw", "--output", str(tmp_path)]) == 0
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == written


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture) -> None:
    assert main(["--memories", "relits"]) == 2
    assert "did you mean 'relit'" in capsys.readouterr().err
    assert main(["--repeats", "0"]) == 2
    assert "repeats must be an integer of at least 1" in capsys.readouterr().err
