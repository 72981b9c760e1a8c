"""Rows of metrics and the summary of a run."""

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from clew.agents.learners import describes_updates
from clew.errors import UserError
from clew.run.config import TrainConfig
from clew.run.folder import METRICS, write_text
from clew.run.machine import versions
from clew.stats import bootstrap_interval

Row = dict[str, Any]
FINAL_SHARE = 0.1
"""Share of a run, at its end, that the summary's final numbers are means over."""


def make_row(
    sums: dict[str, Float[Array, "..."]], update: int, config: TrainConfig, **timing: float
) -> Row:
    """One row of metrics.jsonl.

    Args:
        sums: of the updates since the last row, as in `SeedState.sums`, with or without a
            leading axis of seeds.
        update: number of updates made.
        config: of the run.
        timing: "seconds" of training and "rate", environment steps per second over all seeds.

    Returns:
        "update", "steps" (of one seed), the timing, and for every metric a list over seeds: means
        over the row's updates for those of the loss, over its episodes for those of episodes,
        None where no episode ended; "episodes" is their number.
    """
    count = (update - 1) % config.log_every + 1
    values = {n: np.atleast_1d(np.asarray(v, np.float64)) for n, v in jax.device_get(sums).items()}
    episodes = values.pop("episodes")
    row: Row = {"update": update, "steps": update * config.steps_per_update}
    row |= {name: round(value, 3) for name, value in timing.items()}
    row["episodes"] = [int(n) for n in episodes]
    for name, total in values.items():
        if describes_updates(name):
            row[name] = [_number(v / count) for v in total]
        else:
            pairs = zip(total, episodes, strict=True)
            row[name] = [_number(v / n) if n else None for v, n in pairs]
    return row


class MetricsFile:
    """The run's metrics.jsonl, one JSON object a line, appended to.

    Every method raises `UserError` if the disk is full or cannot be written to.
    """

    def __init__(self, path: Path):
        self._path = path / METRICS
        with self._told():
            self._file = open(self._path, "a", encoding="utf-8")

    def write(self, row: Row) -> None:
        """Appends a row, and hands it to the operating system."""
        with self._told():
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Waits until the disk has every row; before a checkpoint that counts on them."""
        with self._told():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        with contextlib.suppress(OSError):
            self._file.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write {self._path}: {error.strerror}") from error


def read_metrics(path: str | Path) -> list[Row]:
    """The rows of a run, oldest first; a line cut short by a kill is left out.

    Args:
        path: the run's folder.
    """
    file = Path(path) / METRICS
    if not file.exists():
        return []
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def cut_back(path: Path, update: int, log_every: int) -> list[Row]:
    """Drops the rows that a resumed run will write again.

    Those are the rows after the checkpoint's update, and a row that was written early because the
    run had reached its end.

    Returns:
        The rows that stay.
    """
    rows = read_metrics(path)
    kept = [row for row in rows if row["update"] <= update and row["update"] % log_every == 0]
    write_text(path / METRICS, "".join(json.dumps(row) + "\n" for row in kept))
    return kept


def summarise(rows: list[Row], config: TrainConfig, *, seconds: float, parameters: int) -> Row:
    """The summary of a run.

    Returns:
        The configuration's digest, versions, time and rate; "final": for every metric of episodes
        the mean over the last tenth of the run for each seed, their mean and the 95% bootstrap
        interval over seeds (None with one seed); "best": the row with the highest mean return.
    """
    steps = rows[-1]["steps"] if rows else 0
    names = [n for n in rows[-1] if _is_episode_metric(n, rows[-1])] if rows else []
    window = [row for row in rows if row["steps"] > (1 - FINAL_SHARE) * steps]
    return {
        "digest": config.digest(),
        "versions": versions(),
        "env": config.env,
        "memory": config.memory,
        "parameters": parameters,
        "seeds": config.seeds,
        "steps": steps,
        "updates": rows[-1]["update"] if rows else 0,
        "seconds": round(seconds, 3),
        "rate": round(steps * config.seeds / seconds, 1) if seconds else None,
        "final": {name: _final(window, name) for name in names},
        "best": _best(rows, names),
    }


def _final(window: list[Row], name: str) -> Row:
    totals = []
    for seed in range(len(window[-1][name])):
        pairs = [(row[name][seed], row["episodes"][seed]) for row in window]
        counted = [(value, n) for value, n in pairs if n and value is not None]
        weight = sum(n for _, n in counted)
        totals.append(sum(v * n for v, n in counted) / weight if weight else None)
    known = [total for total in totals if total is not None]
    mean = sum(known) / len(known) if known else None
    interval = None
    if len(known) >= 2:
        found = bootstrap_interval(known)
        interval = [found.low, found.high]
    return {"per_seed": totals, "mean": mean, "interval": interval}


def _best(rows: list[Row], names: Iterable[str]) -> Row | None:
    if "return" not in names:
        return None

    def mean(row: Row, name: str) -> float:
        known = [value for value in row[name] if value is not None]
        return sum(known) / len(known) if known else -math.inf

    best = max(rows, key=lambda row: mean(row, "return"))
    if mean(best, "return") == -math.inf:
        return None
    return {"steps": best["steps"]} | {name: mean(best, name) for name in names}


def _is_episode_metric(name: str, row: Row) -> bool:
    return isinstance(row[name], list) and name != "episodes" and not describes_updates(name)


def _number(value: Any) -> float | None:
    """Six digits, enough for every plot; None for what JSON cannot say."""
    value = float(value)
    return float(f"{value:.6g}") if math.isfinite(value) else None
