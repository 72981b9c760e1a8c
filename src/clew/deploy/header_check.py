"""Checks that an export's `policy.hpp`, which may be from anybody, compiles."""

import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from clew.deploy.header import INCLUDES
from clew.errors import UserError
from clew.memory.kernels.build import NotBuilt, compiler_version, find_compiler

LARGEST = 2**25
"""Largest header to compile, in bytes: 2.5 million numbers, for which g++ takes 10 s and 1 GB."""
_SECONDS = 120.0
_DIRECTIVES = {"#pragma once", *(f"#include <{name}>" for name in INCLUDES)}
_LIKE_DIRECTIVES = re.compile(r"^.*(?:#|%:|\?\?=|\\$).*$", re.MULTILINE)
"""Lines with anything that a compiler may take for a directive or for a continued line."""


def check_header(data: bytes | None) -> str:
    """Compiles a header without building or running anything.

    Only the directives that `header_file` writes are allowed: others could make the compiler read
    any file, or a device that never ends.

    Args:
        data: the header; None if there is none, or if it has more than `LARGEST` bytes.

    Returns:
        A line on the result for the user.

    Raises:
        UserError: the compiler refuses it, with its first message, or it has another directive.
    """
    if data is None:
        return f"policy.hpp was not compiled: it is missing or has more than {LARGEST:,} bytes"
    for line in _LIKE_DIRECTIVES.findall(data.decode(errors="replace")):
        if line not in _DIRECTIVES:
            raise UserError(f"policy.hpp has the line {line!r:.80}, which no export writes")
    try:
        compiler = find_compiler()
    except NotBuilt as reason:
        return f"policy.hpp was not compiled: {reason}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "policy.hpp").write_bytes(data)
        (Path(folder) / "main.cpp").write_text(_MAIN)
        command = [*compiler, "-std=c++17", "-fsyntax-only", "-w", "main.cpp"]
        try:
            run = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS
            )
        except OSError as error:
            return f"policy.hpp was not compiled: {shlex.join(compiler)}: {error.strerror}"
        except subprocess.TimeoutExpired as error:
            raise UserError(f"compiling policy.hpp takes more than {_SECONDS:.0f} s") from error
    if run.returncode:
        try:
            compiler_version(compiler)
        except NotBuilt as reason:
            return f"policy.hpp was not compiled: {reason}"
        errors = [line for line in run.stderr.splitlines() if "error:" in line]
        shown = " ".join([*errors, *run.stderr.splitlines(), "no reason"][:1])
        raise UserError(f"policy.hpp does not compile: {shown:.200}")
    return f"policy.hpp compiles with {shlex.join(compiler)}"


_MAIN = """#include "policy.hpp"
void use() { policy::Inputs in; policy::Outputs out; policy::step(in, out); }
"""
