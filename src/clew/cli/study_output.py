"""Output of `clew study`: the grid before it runs, a live table meanwhile, then the outcome."""

import sys
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from clew.cli.live import live_console
from clew.cli.tables import print_table
from clew.errors import UserError, counted, require_at_least
from clew.lab.grid import (
    RayWorkers,
    Standing,
    Study,
    StudyLines,
    StudyProgress,
    StudyResult,
    Workers,
    make_packs,
    read_results,
)
from clew.lab.grid.progress import format_standing
from clew.lab.grid.results import finished_cells, refuse_other_study
from clew.lab.grid.sources import changed_code

SHOWN = 8
"""How many programs in progress are shown."""


def chosen_workers(ray: str, count: int) -> AbstractContextManager[int | Workers | None]:
    """The workers: those of a cluster, or processes, 0 for one on every core.

    A connection to a cluster is closed at the end, also if the study is refused.

    Raises:
        UserError: if both are given, the count is below 0, or no cluster answers.
    """
    require_at_least("workers", count, 0)
    if not ray:
        return nullcontext(count or None)
    if count:
        raise UserError("--ray and --workers exclude each other: a cluster sets its own workers")
    return closing(RayWorkers(ray))


def study_listener() -> StudyProgress:
    """The listener for progress: a live table on a terminal, plain lines elsewhere."""
    console = live_console()
    return StudyLines(stream=sys.stderr) if console is None else StudyTable(console)


class StudyTable(StudyProgress):
    """Cells finished and left by model, what is in progress, rate and time left."""

    def __init__(self, console: Console):
        self._live = Live(console=console, auto_refresh=False)

    def start(self, path: Path, study: Study, standing: Standing) -> None:
        self._live.console.print(f"{study.name}: {counted(standing.total, 'run')} -> {path}")
        self._live.start()
        self.report(standing)

    def report(self, standing: Standing) -> None:
        self._live.update(draw(standing), refresh=True)

    def message(self, text: str) -> None:
        self._live.console.print(text, markup=False)

    def close(self) -> None:
        self._live.stop()


def draw(standing: Standing) -> Group:
    """The table of the present state."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in ("finished", "of"):
        table.add_column(name, justify="right")
    for model, (finished, total) in standing.models.items():
        table.add_row(model, f"{finished:,}", f"{total:,}")
    table.add_section()
    table.add_row("all", f"{standing.finished:,}", f"{standing.total:,}")
    packs = list(standing.working.items())
    lines = [f"{share:4.0%}  {pack}" for pack, share in packs[:SHOWN]]
    if len(packs) > SHOWN:
        lines.append(f"      and {len(packs) - SHOWN} more")
    return Group(table, *lines, format_standing(standing))


def show(study: Study, folder: str) -> None:
    """Prints the grid, one line for each model, and how much of it is finished."""
    refuse_other_study(study, Path(folder))
    there = read_results(folder)
    finished = finished_cells(study, there, Path(folder))
    seeds, settings = len(study.seeds), len(study.settings)
    rows = []
    for model in study.models:
        ended = sum(cell.model == model for cell in finished)
        steps = sum(study.config(model, setting).steps for setting in study.settings) * seeds
        cells = settings * seeds
        rows.append([model, f"{cells:,}", f"{ended:,}", f"{cells - ended:,}", f"{steps:,}"])
    packs = make_packs(study, finished)
    note = (
        f"settings: {', '.join(study.settings)}\n"
        f"seeds: {', '.join(map(str, study.seeds))}\n"
        f"{counted(len(study.cells()), 'run')}, {len(finished):,} finished in {folder}, "
        f"{counted(len(packs), 'program')} to go"
    )
    note = "\n".join([note, *changed_code(study, there, Path(folder))])
    print_table(study.name, ["", "runs", "finished", "to go", "environment steps"], rows, note)


def report(study: Study, result: StudyResult) -> str:
    """The outcome of a study: means by model, beside the published ones."""
    lines = []
    for model in study.models:
        # A training in which no episode ended has no mean.
        rows = [r for r in result.rows if r["model"] == model and r["mean"] is not None]
        if not rows:
            continue
        mean = sum(row["mean"] for row in rows) / len(rows)
        known = [study.expected.get((model, n)) for n in {row["setting"] for row in rows}]
        published = [expected.mean for expected in known if expected is not None]
        beside = ""
        if len(published) == len(known):
            beside = f", published {sum(published) / len(published):.3f}"
        lines.append(
            f"{model}: mean {study.score} {mean:.3f} of {counted(len(rows), 'run')}{beside}"
        )
    for pack, error in result.failures:
        lines.append(f"failed: {pack}: {error}")
    if result.failures:
        lines.append("run the same command again to retry what failed")
    lines.append(f"results: {result.path / 'results.jsonl'}")
    return "\n".join(lines)
