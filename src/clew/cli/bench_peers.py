"""`clew bench --peers`: memories of other libraries beside ours."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clew.cli.tables import print_json, print_table, tell, write_figures

if TYPE_CHECKING:
    from clew.lab.bench.peers.plan import Plan
    from clew.lab.bench.peers.report import Comparison


def bench_peers(output: str, *, rounds: int, quick: bool, as_json: bool) -> int:
    """Measures by turns, and prints tables; with `output` also writes and draws them.

    Raises:
        UserError: without a checkout, or if the other libraries cannot be installed.
    """
    from clew.lab.bench.peers.plan import QUICK, Plan
    from clew.lab.bench.peers.report import as_data, grids, heading, sentences
    from clew.lab.bench.peers.worker import WorkerFailed

    try:
        plan = QUICK if quick else Plan(rounds=rounds)
        plan = plan._replace(bytes_limit=min(plan.bytes_limit, _half_of_memory()))
        found = measured(plan, repeats=1 if quick else 3)
    except WorkerFailed as failed:
        print(f"no figures: a library's process {failed}", file=sys.stderr)
        return 1
    if output:
        write(found, Path(output))
    if as_json:
        print_json(as_data(found))
        return 0
    print(heading(found))
    for grid in grids(found):
        print_table(grid.title, grid.columns, grid.rows, grid.note)
    print("\n".join(sentences(found)))
    if quick:
        print("QUICK: short chunks and two turns, no figures to quote")
    return 0


def measured(plan: "Plan", repeats: int) -> "Comparison":
    """Everything that is compared; `repeats` of the product rate each time that it is measured."""
    from clew.cli.bench import device
    from clew.lab.bench.peers.compare import compare
    from clew.lab.bench.peers.environment import peers_python
    from clew.lab.bench.peers.families import FAMILIES
    from clew.lab.bench.peers.report import Comparison
    from clew.lab.bench.peers.worker import Workers
    from clew.lab.bench.speed import matrix_product_rate
    from clew.run.machine import git_commit

    peers_python()
    with Workers() as workers:
        agreements, rows, rates = compare(
            FAMILIES, plan, workers, lambda: matrix_product_rate(repeats), tell
        )
        versions = {}
        for subject in dict.fromkeys(s for family in FAMILIES for s in family.subjects):
            versions |= workers.of(subject).ask("libraries")
    machine = device() | {"commit": git_commit()}
    return Comparison(machine, plan, versions, rates, agreements, rows)


def write(found: "Comparison", folder: Path) -> None:
    """`peers.json`, `peers.md` and `peers.png` in a folder; see `write_figures`."""
    from clew.lab.bench.peers.picture import draw
    from clew.lab.bench.peers.report import as_data, heading, markdown

    path = write_figures(folder, "peers", as_data(found), markdown(found))
    draw(found.rows, path, heading(found))


def _half_of_memory() -> int:
    """Bytes; without a bound where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 2**62
