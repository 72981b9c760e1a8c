"""What `clew study` prints of a grid: before it runs, and when it has run."""

from typing import TYPE_CHECKING

from clew.cli.tables import print_table

if TYPE_CHECKING:
    from clew.lab.grid import Study, StudyResult


def show(study: "Study", folder: str) -> None:
    """Prints the grid, a line for every model, and how much of it is there already."""
    from pathlib import Path

    from clew.lab.grid import make_packs, read_results
    from clew.lab.grid.results import finished_cells

    finished = finished_cells(study, read_results(folder), Path(folder))
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
        f"{len(study.cells()):,} cells, {len(finished):,} finished in {folder}, "
        f"{len(packs):,} programs to run"
    )
    print_table(study.name, ["", "cells", "finished", "to run", "environment steps"], rows, note)


def report(study: "Study", result: "StudyResult") -> str:
    """What a finished study says of itself: means by model, beside the published ones."""
    lines = []
    for model in study.models:
        # A training in which no episode ended has no mean.
        rows = [r for r in result.rows if r["model"] == model and r["mean"] is not None]
        if not rows:
            continue
        mean = sum(row["mean"] for row in rows) / len(rows)
        known = [study.expected.get((model, setting)) for setting in study.settings]
        told = [expected.mean for expected in known if expected is not None]
        beside = f", published {sum(told) / len(told):.3f}" if len(told) == len(known) else ""
        lines.append(f"{model}: mean {study.score} {mean:.3f} of {len(rows)} cells{beside}")
    for pack, error in result.failures:
        lines.append(f"failed: {pack}: {error}")
    if result.failures:
        lines.append("the same command tries again what failed")
    lines.append(f"results: {result.path / 'results.jsonl'}")
    return "\n".join(lines)
