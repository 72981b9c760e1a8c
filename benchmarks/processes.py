"""Measurements by separate programs, which print their results as a line of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
"""The checkout, in which programs run."""


def answer(
    words: Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    python: str = sys.executable,
    begin: Callable[[], None] | None = None,
) -> Any:
    """The last line that a program printed, parsed as JSON; exits with its error if it fails.

    `begin` is called in the new process first.
    """
    environment = os.environ | (variables or {})
    ran = subprocess.run(
        [python, *words],
        cwd=ROOT,
        env=environment,
        preexec_fn=begin,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        sys.exit(f"{' '.join(words)}: {ran.stderr[-2000:]}")
    return json.loads(ran.stdout.splitlines()[-1])


def side_by_side(
    programs: Sequence[Sequence[str]], variables: Mapping[str, str] | None = None
) -> list[Any]:
    """The output of programs that work at the same time, each from its `await_start` on."""
    running = [
        subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env=os.environ | (variables or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for words in programs
    ]
    for program in running:
        if program.stdout is None or program.stdout.readline() != READY:
            sys.exit("a process ended before it was ready; its error is above")
    for program in running:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    return [json.loads(program.communicate()[0]) for program in running]


READY = "ready\n"


def await_start() -> None:
    """For a program of `side_by_side`: returns when all of them have got this far."""
    print(READY, end="", flush=True)
    sys.stdin.readline()
