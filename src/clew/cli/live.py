"""Progress of a training: a live line on a terminal, plain lines elsewhere."""

import sys
from pathlib import Path
from typing import Any

from rich import progress as bars
from rich.console import Console

from clew.output import fail_safe
from clew.run.config import TrainConfig
from clew.run.progress import CompileTimer, Lines, Progress, Report, format_scores, format_seconds


def listener(label: str = "") -> Progress:
    """The listener for a training: a live line on a terminal, plain lines elsewhere."""
    console = live_console()
    return Lines(stream=sys.stderr) if console is None else Live(console, label)


def live_console() -> Console | None:
    """Standard error, if it is a terminal that can redraw a line or a table."""
    console = Console(file=fail_safe(sys.stderr), markup=False, highlight=False)
    return console if console.is_terminal and not console.is_dumb_terminal else None


class Live(Progress):
    """One line on a terminal: a bar, time since the start, steps, rate, time left and scores.

    It begins with the label, by default the run's name.
    """

    def __init__(self, console: Console, label: str = ""):
        self._label = label
        self._row: dict[str, Any] = {}
        self._text = "training"
        self._bar = bars.Progress(
            bars.SpinnerColumn(),
            # Names and messages may have brackets, which Rich would read as markup.
            bars.TextColumn("{task.fields[label]}", style="bold", markup=False),
            bars.BarColumn(bar_width=18),
            bars.TimeElapsedColumn(),
            bars.TextColumn("{task.fields[text]}", markup=False),
            console=console,
        )
        self._task: bars.TaskID | None = None
        self._compiling = CompileTimer()

    def start(self, path: Path, config: TrainConfig) -> None:
        seeds = f"{config.seeds} seeds, " if config.seeds > 1 else ""
        each = " each" if seeds else ""
        what = f"{config.memory} on {config.env}, {seeds}{config.steps:,} steps{each}"
        self._bar.console.print(f"{what} -> {path}", markup=False, highlight=False)
        label = self._label or path.name
        self._task = self._bar.add_task("", total=None, label=label, text="starting")
        self._bar.start()

    def phase(self, name: str) -> None:
        hint = " (up to a minute; cached for the next time)" if name == "compiling" else ""
        said = self._compiling.enter(name)
        if said.startswith("compiled"):
            self.message(said)
        self._show(text=self._text if name == "training" else name + hint)

    def report(self, report: Report) -> None:
        self._row |= report.row or {}
        self._text = summary_line(report, self._row)
        self._show(total=report.total_steps, completed=report.steps, text=self._text)

    def message(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._bar.stop()

    def _show(self, **fields: Any) -> None:
        if self._task is not None:
            self._bar.update(self._task, **fields)


def summary_line(report: Report, row: dict[str, Any]) -> str:
    """Steps, rate, time left, and return and success as means over seeds."""
    words = [
        f"{short(report.steps)}/{short(report.total_steps)} steps",
        f"{report.rate:,.0f} steps/s",
        f"{format_seconds(report.seconds_left)} left",
    ]
    return "  ".join(words + format_scores(row))


def short(count: float) -> str:
    """A count in short form: 950, 12k, 3.1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            digits = 1 if count / size < 10 and letter != "k" else 0
            return f"{count / size:.{digits}f}{letter}"
    return f"{count:.0f}"
