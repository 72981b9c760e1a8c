"""The compiled kernels equal XLA's steps; behaviour without kernels."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.errors import UserError
from clew.memory import AbstractMemory, kernels, make_memory
from clew.memory.kernels import build
from clew.memory.parts.matrix_recurrence import MatrixInputs, advance_chunk
from memory_forms import (
    TIME,
    assert_equal_forms,
    assert_finite_and_equal,
    forms,
    largest,
    with_gates,
)
from memory_samples import episodes, sample
from slow_cases import fast_only

needs_kernels = pytest.mark.skipif(bool(kernels.why_not()), reason=kernels.why_not() or "-")

# Numbers of rows that fill groups of four and that do not, widths that fill vectors and do not.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("arelit", {"r": 3}),
    ("arelit", {"r": 6, "head_size": 17, "frequencies": "code", "tick": "carried"}),
    ("relit", {"head_size": 17}),
    ("relit", {"decay": "joint", "query": "double"}),
    # Windows shorter and longer than the chunk and than a block of queries.
    ("gtrxl", {"window": 9, "head_size": 17}),
    ("gtrxl", {"window": 50, "banded": False}),
    ("transformer", {"window": 21, "head_size": 40}),
    # Units that fill vectors and panels of them, and that do not.
    ("lstm", {"hidden_size": 64}),
    ("lstm", {"hidden_size": 70, "all_biases": True}),
    ("gru", {"hidden_size": 64}),
    ("gru", {"hidden_size": 70, "all_biases": True}),
    ("gtrxl", {"gate": "temporal_gru", "window": 9}),
    # Matrix states: sums, a decay for every key, the delta rule, and erasing of other keys.
    ("mamba2", {"head_size": 17}),
    ("retention", {"head_size": 34}),
    ("mlstm", {}),
    ("gla", {"head_size": 17}),
    ("gated_delta_net", {"head_size": 17}),
    ("delta_product", {"head_size": 34, "num_householder": 3}),
    ("rwkv7", {"head_size": 17}),
]
KERNEL = {
    "gtrxl": "window",
    "transformer": "window",
    "mamba2": "sum",
    "retention": "sum",
    "mlstm": "sum",
    "gated_delta_net": "delta",
    "delta_product": "delta",
}
"""Memories that share a kernel; the others have their own."""


def is_first(index: int) -> bool:
    """Whether no variant before this one has its kernel."""
    kernels_of = [KERNEL.get(name, name) for name, _ in VARIANTS]
    return kernels_of[index] not in kernels_of[:index]


# Each kernel once, and the GRU's also in double precision; the others are slow.
PRECISIONS = [
    pytest.param(
        name,
        options,
        precision,
        marks=[] if first and (precision == "float32" or name == "gru") else pytest.mark.slow,
    )
    for index, (name, options) in enumerate(VARIANTS)
    for first in [is_first(index)]
    for precision in ("float32", "float64")
]


@needs_kernels
@pytest.mark.parametrize(("name", "options", "precision"), PRECISIONS, ids=str)
def test_a_kernel_is_its_steps(name: str, options: dict[str, Any], precision: str) -> None:
    """Values and all gradients, including those of the state and into it."""
    with jax.enable_x64(precision == "float64"), jax.numpy_dtype_promotion("standard"):
        kernel, steps = forms(name, options, precision, ("kernel", "xla"))
        assert_equal_forms(kernel, steps, precision)


@needs_kernels
@pytest.mark.parametrize("gate", fast_only([-200.0, -30.0, 30.0, 200.0], -200.0))
@pytest.mark.parametrize("name", ["relit", "arelit"])
def test_saturated_gates_are_those_of_steps(name: str, gate: float) -> None:
    """Gates at 0 and at 1, where exponentials overflow, are finite and within rounding."""
    assert_finite_and_equal(*(with_gates(name, form, gate) for form in ("kernel", "xla")))


@needs_kernels
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_saturated_cells_are_those_of_steps(name: str, size: float) -> None:
    """Where tanh is nearly linear, and where all gates are 0 or 1."""
    cells = (sample(name, num_layers=1, backend=form) for form in ("kernel", "xla"))
    assert_finite_and_equal(*cells, size=size)


@needs_kernels
@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("own", [False, True], ids=["one weight", "a weight each"])
def test_a_batch_is_its_members(name: str, own: bool) -> None:
    """In any grouping of rows, each one equals its result alone, including gradients."""
    count, (xs, starts) = 11, episodes(TIME, seed=7)
    batch = np.stack([xs * (1 + b) for b in range(count)])
    memory = sample(name, backend="kernel", hidden_size=20)
    params, static = eqx.partition(memory, eqx.is_inexact_array)
    grown = [jax.tree.map(lambda x, b=b: x * (1 + b / count), params) for b in range(count)]

    def pulled(params: Any, xs: Any) -> Any:
        def outputs(xs: Any) -> Any:
            memory: Any = eqx.combine(params, static)
            return memory.unroll(memory.init_state(), xs, starts)[1]

        ys, pull = jax.vjp(outputs, xs)
        return ys, pull(jnp.sin(ys))

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *grown) if own else params
    batched = jax.vmap(pulled, (0 if own else None, 0))
    together = jax.jit(batched)(stacked, batch)
    alone = jax.jit(pulled)
    for b in range(count):
        one = alone(grown[b] if own else params, batch[b])
        assert largest(jax.tree.map(lambda x, b=b: x[b], together), one) < 1e-6


@needs_kernels
def test_threads_change_nothing() -> None:
    """Whichever thread takes which head, a batch is bit for bit the same."""
    memory = sample("arelit", num_layers=1, backend="kernel")
    xs, starts = episodes(TIME, seed=7)
    batch = np.stack([xs * (1 + b) for b in range(9)])

    def outputs(memory: AbstractMemory, xs: Any) -> Any:
        return memory.unroll(memory.init_state(), xs, starts)[1]

    all_of_them = jax.jit(jax.vmap(partial(outputs, memory)))
    assert np.array_equal(all_of_them(batch), all_of_them(batch))


@needs_kernels
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_cell_with_a_turned_weight_is_refused(name: str) -> None:
    """A weight in PyTorch's layout; the kernel used to read beyond its end, or crash."""
    memory = sample(name, num_layers=1)
    turned = eqx.tree_at(lambda m: m.cells[0].recurrent.weight, memory, replace_fn=jnp.transpose)
    xs, starts = episodes(TIME)
    with pytest.raises(UserError, match="needs a recurrent weight, .* of shapes"):
        turned.unroll(memory.init_state(), xs, starts)


@needs_kernels
def test_arrays_that_do_not_fit_together_are_refused() -> None:
    """Such as one number for all heads, which XLA would broadcast."""
    rows = jnp.ones((TIME, 2, 4))
    inputs = MatrixInputs(rows, rows, rows, jnp.zeros((TIME, 1)))
    with pytest.raises(UserError, match=r"keep has shape \[\d+, 1, 1\] .* \[time, heads, decays\]"):
        advance_chunk("kernel", jnp.zeros((2, 4, 4)), inputs, jnp.zeros(TIME, bool))


def test_impossible_choices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, and with the reason if there is no kernel."""
    with pytest.raises(UserError, match="did you mean 'kernel'"):
        make_memory("arelit", input_size=3, key=jax.random.key(0), backend="kernels")
    monkeypatch.setattr(kernels, "why_not", lambda: "no compiler")
    with pytest.raises(UserError, match="backend='kernel' is not possible: no compiler"):
        make_memory("relit", input_size=3, key=jax.random.key(0), backend="kernel")
    with pytest.warns(UserWarning, match="XLA is used instead of clew's kernels: no compiler"):
        assert not kernels.uses_kernel("auto")
    assert not kernels.uses_kernel("auto")  # the second time without a warning, which would raise
    monkeypatch.setattr(kernels, "why_not", lambda: build.SWITCHED_OFF)
    assert not kernels.uses_kernel("auto")


def test_without_a_compiler_there_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For every way in which compiling can fail; a partly written file is never loaded."""
    monkeypatch.setenv("CLEW_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CLEW_KERNELS", "0")
    with pytest.raises(build.NotBuilt, match="CLEW_KERNELS is 0"):
        build.load_kernels()
    monkeypatch.delenv("CLEW_KERNELS")
    monkeypatch.setenv("CXX", "'c++")
    with pytest.raises(build.NotBuilt, match="which is not a command: No closing quotation"):
        build.load_kernels()
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(build.NotBuilt, match="/nowhere/c\\+\\+ --version failed"):
        build.load_kernels()
    script = tmp_path / "c++"
    script.write_text("#!/bin/sh\n[ $1 = --version ] || { echo 'no space left' >&2; exit 1; }\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(build.NotBuilt, match="no space left"):
        build.load_kernels()
    assert not list((tmp_path / "kernels").iterdir())
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(build.NotBuilt, match="no C\\+\\+ compiler"):
        build.load_kernels()


def test_a_broken_library_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is the reason why there are no kernels."""
    monkeypatch.setenv("CLEW_CACHE_DIR", str(tmp_path))
    script = tmp_path / "c++"
    script.write_text('#!/bin/sh\nfor last; do :; done\n[ $1 = --version ] || echo x > "$last"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(build.NotBuilt, match="cannot be loaded"):
        build.load_kernels()


def test_a_compiler_that_takes_too_long_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It ends with the program that it has started, and leaves nothing behind."""
    monkeypatch.setenv("CLEW_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build, "_LONGEST", 2.0)
    script, pipe = tmp_path / "c++", tmp_path / "pipe"
    script.write_text(f"#!/bin/sh\n[ $1 = --version ] && exit\nsleep 60 > {pipe} & wait\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(build.NotBuilt, match="timed out after 2.0 seconds"):
        build.load_kernels()
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "it is at its end once nobody has it open for writing"
    os.close(reader)
    assert list((tmp_path / "kernels").iterdir()) == []


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with a library in it, and a compiler that makes the same one again at once."""
    monkeypatch.setenv("CLEW_CACHE_DIR", str(tmp_path))
    whole, script = tmp_path / "whole.so", tmp_path / "c++"
    compiler = [*build.find_compiler(), "-shared", "-x", "c++", os.devnull, "-o", str(whole)]
    subprocess.run(compiler, check=True)
    script.write_text(
        "#!/bin/sh\nfor last; do :; done\n[ $1 = --version ] && exit\n"
        f"echo >> {tmp_path}/builds\ncp {whole} $last\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    build.load_kernels()
    return tmp_path / "kernels"


def builds(cache: Path) -> int:
    """How often the compiler was called."""
    return len((cache.parent / "builds").read_text())


def in_place(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Something else in place of a file."""

    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


def unloaded(path: Path) -> None:
    """Puts a copy in a library's place: damaging one that this process has loaded crashes it."""
    copy = path.with_suffix(".copy")
    shutil.copy2(path, copy)
    copy.replace(path)


def flip(path: Path) -> None:
    """Changes one bit."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "cut short": lambda path: os.truncate(path, 8_192),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: os.truncate(path, 2**40),
    "a bit": flip,
    "a pipe": in_place(lambda path: os.mkfifo(path)),
    "a link": in_place(lambda path: path.symlink_to(path.parents[1] / "whole.so")),
    "others may write": lambda path: path.chmod(0o666),
}


@needs_kernels
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_compiled_again(damage: str, cache: Path) -> None:
    """It is never loaded, which would crash the process, and nothing waits for a pipe."""
    build.load_kernels()
    assert builds(cache) == 1
    (path,) = cache.iterdir()
    unloaded(path)
    DAMAGES[damage](path)
    build.load_kernels()
    build.load_kernels()
    assert builds(cache) == 2 and list(cache.iterdir()) == [path]
    assert path.read_bytes() == (cache.parent / "whole.so").read_bytes()


@needs_kernels
def test_what_is_around_a_library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leftovers of killed builds are removed once no build can be using them; a folder is named."""
    left, begun = cache / "building-1.so", cache / "building-2.so"
    for path in (left, begun):
        path.write_bytes(b"half")
    os.utime(left, (0, 0))
    build.load_kernels()
    assert not left.exists() and begun.exists() and builds(cache) == 1
    (path,) = cache.glob("kernels-*")
    in_place(lambda path: path.mkdir())(path)
    with pytest.raises(build.NotBuilt, match=r"\.so is damaged and cannot be removed: Is a dir"):
        build.load_kernels()
    assert builds(cache) == 1


@needs_kernels
def test_where_no_library_is_loaded_from(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a folder in which others may write; without a home there is none, not even ./~."""
    for mode in (0o777, 0o775):
        cache.chmod(mode)
        with pytest.raises(build.NotBuilt, match=rf"others may write to .*mode {mode:o}\), so no"):
            build.load_kernels()
    cache.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(build.NotBuilt, match=r"others may write") if os.getuid() else nullcontext():
        build.load_kernels()
    monkeypatch.delenv("CLEW_CACHE_DIR")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.chdir(cache)
    with pytest.raises(build.NotBuilt, match="there is no home folder .* set CLEW_CACHE_DIR"):
        build.load_kernels()
    assert not Path("~").exists()


def test_kernels_are_compiled_ahead() -> None:
    """`python -m clew.memory.kernels` reports whether they exist."""
    command = [sys.executable, "-m", "clew.memory.kernels"]
    run = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert run.strip() == (kernels.why_not() or "clew's kernels are compiled")
