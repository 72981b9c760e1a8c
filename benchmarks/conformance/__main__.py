"""Tests other libraries' memories by the laws of `clew check`.

    make conformance
    python -m benchmarks.conformance --only memax --output /tmp/memax

Every model runs in its own process, in the environment that `make conformance` builds.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.options import described

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 900
"""Most seconds for a model."""


def main(args: Sequence[str] | None = None) -> None:
    """Tests the models, prints each outcome, and writes rows and table."""
    parser = described(__doc__, draws=True)
    parser.add_argument("--only", nargs="*", default=[""], help="models whose names begin so")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--output", default="", help="write rows.jsonl and table.md here")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    given = parser.parse_args(args)
    from benchmarks.conformance import page  # start: clew takes a second

    if given.one:
        print(json.dumps(_row(given.one)))
        return
    folder = Path(given.output) if given.output else None
    rows = page.load(folder) if folder else {}
    if not given.redraw:
        names = [name for name in _names() if name.startswith(tuple(given.only))]
        with ThreadPoolExecutor(given.jobs) as pool:
            for row in pool.map(_try, names):
                rows[row["model"]] = row
                print(page.line(row), file=sys.stderr, flush=True)
                if folder:
                    page.save(list(rows.values()), folder)
    page.write(list(rows.values()), folder)


def _names() -> list[str]:
    from benchmarks.conformance.models import MODELS

    return list(MODELS)


def _row(name: str) -> dict[str, Any]:
    import jax

    # A program that waits for a call to PyTorch must not be dispatched asynchronously.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    from benchmarks.conformance.models import MODELS
    from benchmarks.conformance.trial import try_model

    return try_model(name, MODELS[name])


def _try(name: str) -> dict[str, Any]:
    """The row of a model, from its own process; if that fails, the row has its last output."""
    command = [sys.executable, "-m", "benchmarks.conformance", "--one", name]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"model": name, "error": f"no answer within {LIMIT} seconds"}
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"model": name, "error": said[:500]}
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
