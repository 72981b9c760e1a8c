"""Seconds from the launch of `clew train` to its first training step, cold and warm.

    python -m benchmarks.start                               # of this checkout
    python -m benchmarks.start --checkouts BEFORE AFTER      # of two others, by turns

Each start is the command itself in its own process, timed from its launch to the line that it
prints after its first update. Cold: the cache of compiled programs is empty; warm: the same command
has filled it. The kernels are built before, once for a machine. A checkout is a folder that has
`src`; all run in this interpreter's environment. All commands take 15 minutes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measured

from clew.cli.tables import log
from clew.errors import unknown_name
from clew.lab.bench.machine import device
from clew.lab.bench.timing import Estimate, by_turns, estimate, seconds_of
from clew.lab.studies.tmaze.grid import PRESETS
from clew.memory.kernels import why_not
from clew.memory.kernels.build import cache_folder
from clew.report.document import Measured, NothingMeasured, tabulate

COMMANDS: dict[str, tuple[str, ...]] = {
    "clew train": (),
    **{name.partition("/")[2]: ("--preset", name) for name in PRESETS},
}
"""The started commands, by name: options of `clew train`."""

FIRST_STEP = " steps/s"
"""Text that the line after the first update contains, and no line before it."""

HERE = Path(__file__).parents[1]
QUICK = ("--memory-options", "hidden_size=8", "num_layers=1")
"""Options of every command with --quick, which starts each once."""
QUICK_NOTE = "QUICK: small memories and one turn; do not quote these figures"
NOTE = (
    "seconds from the launch of the command to the end of its first update, the median and its 95% "
    "interval (with fewer than six turns the extremes). cold: no program is in the cache; warm: "
    "the same command has run before. The kernels are built already."
)


class Row(NamedTuple):
    """One command by one checkout."""

    name: str
    checkout: str
    """The checkout's commit."""
    arguments: tuple[str, ...]
    cold: Estimate
    warm: Estimate


def measure(given: argparse.Namespace) -> Measured:
    """Starts every command cold and warm by each checkout, by turns.

    Raises:
        NothingMeasured: if a command ends before its first update, with what it printed last.
        UserError: for an unknown name.
    """
    for name in given.memories:
        if name not in COMMANDS:
            raise unknown_name("command to start", name, COMMANDS)
    why_not()  # builds the kernels
    arguments = {
        name: (*COMMANDS[name], *(QUICK if given.quick else ()))
        for name in given.memories or COMMANDS
    }
    measures = {
        (name, checkout): partial(cold_and_warm, words, checkout)
        for name, words in arguments.items()
        for checkout in given.checkouts
    }
    found = by_turns(measures, 1 if given.quick else given.repeats, log=log)
    commits = {checkout: commit(checkout) for checkout in given.checkouts}
    rows = []
    for (name, checkout), seconds in found.items():
        cold, warm = (estimate(each) for each in zip(*seconds, strict=True))
        rows.append(Row(name, commits[checkout], arguments[name], cold, warm))
    return document(device(), rows)


def document(machine: Mapping[str, Any], rows: Sequence[Row]) -> Measured:
    """The measurements, as `start.json` and `start.md`."""
    lines = [[row.name, row.checkout, f"{row.cold:.1f}", f"{row.warm:.1f}"] for row in rows]
    title = f"Seconds to the first training step, {machine['cores']} cores"
    table = tabulate("start", title, ("", "commit", "cold", "warm"), lines, NOTE)
    return Measured("start", {"machine": machine, "rows": rows}, [table])


def commit(checkout: Path) -> str:
    """A description of a checkout."""
    words = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def cold_and_warm(arguments: Sequence[str], checkout: Path = HERE) -> list[float]:
    """Seconds to the first step with an empty cache, and with the cache that this start filled.

    Raises:
        NothingMeasured: if the command ends before its first update, with what it printed last.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(cache_folder(), Path(folder, "kernels"))
        for _ in ("cold", "warm"):
            with launch(arguments, folder, checkout) as process:
                found.append(seconds_of(lambda process=process: await_first_step(process)))
                process.kill()
    return found


def launch(arguments: Sequence[str], folder: str, checkout: Path) -> subprocess.Popen[str]:
    """Starts `clew train` with its runs and caches in a folder."""
    environment = {**os.environ, "CLEW_CACHE_DIR": folder, "PYTHONPATH": str(checkout / "src")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    return subprocess.Popen(
        [sys.executable, "-m", "clew", "train", "--run-dir", folder, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def await_first_step(process: subprocess.Popen[str]) -> None:
    """Waits for the line after the first update; `NothingMeasured` if the process ends before."""
    seen: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        if FIRST_STEP in line:
            return
        seen.append(line)
    raise NothingMeasured("clew train ended before its first update:\n" + "".join(seen[-5:]))


def main(args: Sequence[str] | None = None) -> int:
    """Measures, prints and writes."""
    parser = measured.parser(__doc__, repeats=5)
    parser.add_argument("--checkouts", type=Path, nargs="+", default=[HERE], help="whose code")
    return measured.run(
        parser,
        args,
        measure,
        lambda folder: measured.redrawn(document, folder, "start", Row),
        QUICK_NOTE,
    )


if __name__ == "__main__":
    sys.exit(main())
