"""How long a user waits for the first training step of `clew train`, cold and warm.

Each start is the command itself in a process of its own, timed from its launch to the line that it
prints after its first update. Cold, the cache of compiled programs is empty; warm, the same command
has filled it. The kernels are built before, once for a machine.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clew.errors import unknown_name
from clew.lab.bench.machine import device
from clew.lab.bench.timing import Estimate, by_turns, estimate, seconds_of
from clew.lab.studies.tmaze.grid import PRESETS
from clew.memory.kernels import why_not
from clew.memory.kernels.build import cache_folder
from clew.report.document import Measured, NothingMeasured, tabulate
from clew.run.machine import git_commit

COMMANDS: dict[str, tuple[str, ...]] = {
    "clew train": (),
    **{name.partition("/")[2]: ("--preset", name) for name in PRESETS},
}
"""What is started, by name: options of `clew train`."""

FIRST_STEP = " steps/s"
"""What the line after the first update has, and no line before it."""


class StartPlan(NamedTuple):
    """How much to measure."""

    turns: int = 5
    """cold and warm starts of each command"""
    options: tuple[str, ...] = ()
    """of every command, besides its own"""


QUICK = StartPlan(1, ("--memory-options", "hidden_size=8", "num_layers=1"))
"""Enough to see that it works; not to quote."""
QUICK_NOTE = "QUICK: small memories and one turn, no figures to quote"
NOTE = (
    "seconds from the launch of the command to the end of its first update, the median and its 95% "
    "interval (with fewer than six turns the extremes). cold: no program is in the cache; warm: "
    "the same command has run before. The kernels are built already."
)


class Row(NamedTuple):
    """One command."""

    name: str
    arguments: tuple[str, ...]
    cold: Estimate
    warm: Estimate


def report(names: Sequence[str], plan: StartPlan, log: Callable[[str], None]) -> Measured:
    """Starts every command cold and warm by turns.

    Args:
        names: keys of `COMMANDS`; all if empty.
        plan: how much to measure.
        log: called with what is done next.

    Raises:
        NothingMeasured: if a command ends before its first update, with what it printed last.
        UserError: for a name that is none.
    """
    for name in names:
        if name not in COMMANDS:
            raise unknown_name("command to start", name, COMMANDS)
    why_not()  # builds the kernels
    measures = {
        name: partial(cold_and_warm, (*COMMANDS[name], *plan.options)) for name in names or COMMANDS
    }
    found = by_turns(measures, plan.turns, log=log)
    rows = [_row(name, plan, seconds) for name, seconds in found.items()]
    machine = device() | {"commit": git_commit()}
    return document(rows, machine, plan)


def document(rows: Sequence[Row], machine: Mapping[str, Any], plan: StartPlan) -> Measured:
    """What `report` measured, as `start.json` and `start.md`."""
    lines = [[row.name, f"{row.cold:.1f}", f"{row.warm:.1f}"] for row in rows]
    title = f"Seconds to the first training step, {machine['cores']} cores"
    table = tabulate("start", title, ("", "cold", "warm"), lines, NOTE)
    data = {"machine": machine, "plan": plan, "rows": rows}
    return Measured("start", data, [table])


def cold_and_warm(arguments: Sequence[str]) -> list[float]:
    """Seconds to the first step with an empty cache, and with the one that this start has left.

    Args:
        arguments: of `clew train`.

    Raises:
        NothingMeasured: if the command ends before its first update, with what it printed last.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(cache_folder(), Path(folder, "kernels"))
        for _ in ("cold", "warm"):
            with launch(arguments, folder) as process:
                found.append(seconds_of(lambda process=process: await_first_step(process)))
                process.kill()
    return found


def launch(arguments: Sequence[str], folder: str) -> subprocess.Popen[str]:
    """Starts `clew train` with its runs and caches in a folder."""
    environment = {**os.environ, "CLEW_CACHE_DIR": folder}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    return subprocess.Popen(
        [sys.executable, "-m", "clew", "train", "--run-dir", folder, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def await_first_step(process: subprocess.Popen[str]) -> None:
    """Waits for the line after the first update.

    Raises:
        NothingMeasured: if the process ends before, with what it printed last.
    """
    seen: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        if FIRST_STEP in line:
            return
        seen.append(line)
    raise NothingMeasured("clew train ended before its first update:\n" + "".join(seen[-5:]))


def _row(name: str, plan: StartPlan, seconds: Sequence[Sequence[float]]) -> Row:
    cold, warm = zip(*seconds, strict=True)
    return Row(name, (*COMMANDS[name], *plan.options), estimate(cold), estimate(warm))
