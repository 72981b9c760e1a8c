"""`policy.hpp`, compiled with this machine's compiler, acts like the policy it is made from."""

import os
import re
import shutil
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from exports import (
    IN_FLOAT64,
    LeakyMean,
    Played,
    agent_of,
    deviation_of,
    encoding_agent,
    in_float64,
    inputs_of,
    memory_of,
    steps_of,
)
from gymnasium import spaces

from clew.agents.encoders import EncoderConfig
from clew.deploy import header_check
from clew.deploy.graph import GraphBuilder, Ref
from clew.deploy.header import INCLUDES, header_file, identifiers
from clew.deploy.header_check import check_header
from clew.deploy.policy import PolicyStep, Traced
from clew.errors import UserError
from clew.memory import MEMORIES
from memory_samples import INPUT_SIZE, quick_compilation
from own_lru import LRU

__all__ = ["quick_compilation"]
TOLERANCE = 1e-5
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or ""
pytestmark = pytest.mark.skipif(not COMPILER, reason="there is no C++ compiler")
MAIN = """
#include <cstdio>
#include "policy.hpp"
int main() {
  policy::Inputs in{}; policy::Outputs out{};
  while (true) {
    bool reset;
    if (std::fread(&reset, 1, 1, stdin) != 1) return 0;
    if (reset) policy::state = policy::State{};
    %s
    policy::step(in, out);
    %s
  }
}
"""


def program(traced: Traced, folder: Path, optimise: str = "-O0") -> Path:
    """Reads inputs and writes outputs and the state, in the manifest's order."""
    read = [
        f"if (!std::fread(&in.{n}, sizeof in.{n}, 1, stdin)) return 1;"
        for n in names(traced.inputs)
    ]
    wanted = [f"out.{name}" for name in names(traced.outputs)]
    wanted += [f"policy::state.{name}" for name in names(traced.state)]
    written = [f"std::fwrite(&{name}, sizeof {name}, 1, stdout);" for name in wanted]
    (folder / "policy.hpp").write_bytes(header_file(traced, "test"))
    (folder / "main.cpp").write_text(MAIN % ("\n    ".join(read), "\n    ".join(written)))
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = [COMPILER, *strict, optimise, "main.cpp", "-o", "policy"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "policy"


def names(entries: list[dict[str, Any]]) -> list[str]:
    """The header's names of inputs, outputs or the state."""
    return list(identifiers(entry["name"] for entry in entries).values())


def played(traced: Traced, binary: Path, rows: list[list[dict]]) -> Played:
    """The program's outputs for every environment's inputs."""
    given = b"".join(
        np.array(time == 0).tobytes() + b"".join(inputs[e["name"]].tobytes() for e in traced.inputs)
        for lane in rows
        for time, inputs in enumerate(lane)
    )
    out = subprocess.run([binary], input=given, capture_output=True, check=True).stdout
    kinds = [
        (kind, np.dtype([(e["name"], np.dtype(e["dtype"]), tuple(e["shape"])) for e in entries]))
        for kind, entries in (("output", traced.outputs), ("state", traced.state))
    ]
    found = np.frombuffer(out, np.dtype(kinds)).reshape(len(rows), len(rows[0]))
    for now in found.T:
        outputs, state = ({n: now[kind][n] for n in dtype.names or ()} for kind, dtype in kinds)
        yield outputs, state


def header_deviation(
    step: PolicyStep, folder: Path, batch: int, time: int, **options: Any
) -> float:
    """How far the compiled header deviates from `step` in JAX."""
    traced = step.trace()
    binary = program(traced, folder, **options)
    given = list(islice(inputs_of(step, batch, 0), time))
    lanes = [[{n: x[i] for n, x in now.items()} for now in given] for i in range(batch)]
    return deviation_of(step, given, played(traced, binary, lanes), batch)


@pytest.mark.parametrize("name", ["lstm", "transformer_xl", "arelit"])
def test_memories(name: str, tmp_path: Path) -> None:
    """They agree in 40 steps of three environments with starts anywhere."""
    step = steps_of(agent_of(memory_of(name, num_layers=1)))
    assert header_deviation(step, tmp_path, batch=3, time=40) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_every_memory_for_long(name: str, tmp_path: Path) -> None:
    """They agree in 1,000 steps of 64 environments one after another, optimised, in float64."""
    with in_float64(name) as step:
        found = header_deviation(step, tmp_path, batch=64, time=1000, optimise="-O2")
    assert found <= IN_FLOAT64


def test_a_memory_of_ones_own_and_continuous_actions(tmp_path: Path) -> None:
    """With a counter in the state, and actions within limits."""
    space = spaces.Box(-1.0, 2.0, (2,))
    agent = agent_of(LeakyMean(INPUT_SIZE, key=jax.random.key(0)), space)
    assert header_deviation(steps_of(agent, actions=space), tmp_path, batch=2, time=20) <= TOLERANCE


def test_a_complex_memory(tmp_path: Path, ordinary_promotion: None) -> None:
    """Its state is pairs of numbers."""
    step = steps_of(agent_of(LRU(INPUT_SIZE, key=jax.random.key(0))))
    assert header_deviation(step, tmp_path, batch=2, time=20) <= TOLERANCE


def test_a_dictionary_with_a_picture(tmp_path: Path) -> None:
    """With convolutions, pooling, and several inputs."""
    space = spaces.Dict(
        {"eye": spaces.Box(0, 255, (3, 9, 8), np.uint8), "x": spaces.Box(0, 1, (2,))}
    )
    config = EncoderConfig("impala", picture_channels=(2,), picture_size=4)
    step = steps_of(encoding_agent(space, config), observations=space)
    assert header_deviation(step, tmp_path, batch=2, time=5) <= TOLERANCE


HARMFUL = "x\n#error evil\r};static_assert(false);struct E{\\"


def named(names: list[str]) -> Traced:
    """A policy with given names of inputs, outputs and state; it adds one to each."""
    builder, shape = GraphBuilder(), (2,)
    entries = [{"name": name, "shape": [2], "dtype": "float32"} for name in names]
    given, states = (
        {name: Ref(f"{kind}/{name}", shape, np.dtype(np.float32)) for name in names}
        for kind in ("in", "state")
    )
    one = builder.constant(np.ones(2, np.float32), HARMFUL)
    results = {name: builder.emit("add", ref, one) for name, ref in given.items()}
    after = {name: builder.emit("add", ref, one) for name, ref in states.items()}
    start = Ref("in/start", (), np.dtype(bool))
    graph = builder.finish(given | {"start": start}, states, results, after)
    inputs = [*entries, {"name": "start", "shape": [], "dtype": "bool"}]
    first = {name: np.zeros(2, np.float32) for name in names}
    return Traced(graph, inputs, entries, entries, first)


def macros() -> list[str]:
    """All macros that the compiler and the header's includes define."""
    lines = "".join(f"#include <{name}>\n" for name in INCLUDES)
    command = [COMPILER, "-dM", "-E", "-x", "c++", "-"]
    found = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return re.findall(r"^#define (\w+)(?= )", found.stdout, re.MULTILINE)


@pytest.mark.slow
def test_names_of_every_kind_compile(tmp_path: Path) -> None:
    """Names with ends of comments, names equal in C++, keywords, macros, and other alphabets."""
    words = ["a/b", "a_b", "a b", "a_b_2", "class", "State", "t0", "w0", "k", "i0", "detail", ""]
    words += ["größe", "µ²", "1", "日本", "??/", "*/", "/*", "x\\", "%:error", "\udc80", HARMFUL]
    traced = named([*words, *macros()])
    header = header_file(traced, "test")
    assert header.isascii() and check_header(header).startswith("policy.hpp compiles with")
    program(traced, tmp_path)
    assert list(identifiers(words[:6]).values()) == [
        *("a_b", "a_b_2", "a_b_3", "a_b_2_2", "class_", "State_")
    ]


def test_a_program_of_two_files_has_the_weights_once(tmp_path: Path) -> None:
    (tmp_path / "policy.hpp").write_bytes(header_file(named(["a"]), "test"))
    (tmp_path / "other.cpp").write_text(
        '#include "policy.hpp"\nconst void* other() { return policy::detail::w0; }\n'
    )
    (tmp_path / "main.cpp").write_text(
        '#include "policy.hpp"\nconst void* other();\n'
        "int main() { return other() != policy::detail::w0; }\n"
    )
    command = [COMPILER, "-std=c++17", "main.cpp", "other.cpp", "-o", "two"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "two"], check=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("float b[2];", "float a[2];"), "policy.hpp does not compile: .*error: "),
        (("#pragma once", '#include "/dev/zero"'), "has the line '#include \"/dev/zero\"'"),
        (("#pragma once", "/**/ #include </dev/zero>"), "which no export writes"),
        (("#pragma once", '%:include "/dev/zero"'), "which no export writes"),
        (("#pragma once", "#pragma \\\nonce"), "which no export writes"),
    ],
)
def test_a_header_that_does_not_compile(change: tuple[str, str], said: str) -> None:
    """It is refused, and the compiler reads no other file because of it."""
    text = header_file(named(["a", "b"]), "test").decode().replace(*change)
    with pytest.raises(UserError, match=said) as error:
        check_header(text.encode())
    assert "\n" not in str(error.value)


def test_headers_that_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a header or a compiler that runs; a compiler that never ends is an error."""
    assert "is missing or has more than" in check_header(None)
    monkeypatch.setenv("CXX", "'")
    assert "policy.hpp was not compiled: CXX is" in check_header(b"")
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert "not compiled: /nowhere/c++: No such file" in check_header(b"")
    # As on macOS without the command line tools.
    monkeypatch.setenv("CXX", "sh -c 'echo No developer tools were found >&2; exit 1'")
    assert re.search(r"not compiled: .* failed: No developer tools were found", check_header(b""))
    monkeypatch.setenv("CXX", "sh -c 'sleep 9'")
    monkeypatch.setattr(header_check, "_SECONDS", 0.1)
    with pytest.raises(UserError, match="compiling policy.hpp takes more than 0 s"):
        check_header(b"")
