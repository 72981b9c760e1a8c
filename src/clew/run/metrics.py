"""The log of a run: rows of metrics, their summary, advice on its settings."""

import contextlib
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float

from clew.agents.learners import OWN_METRIC, describes_updates
from clew.errors import UserError, one_line
from clew.files import finite
from clew.interact import default_settings
from clew.run import json_lines
from clew.run.best import Score
from clew.run.config import TrainConfig
from clew.run.folder import CONFIG, METRICS
from clew.run.json_lines import Row, RowFile
from clew.run.machine import versions
from clew.run.names import EVALUATED
from clew.stats import Interval, bootstrap_interval

_KINDS = {"steps": int, "episodes": list}
_COLUMNS = (
    *("update", "steps", "seconds", "rate", "episodes"),
    *("lag", "lag_max", "actor_wait", "learner_wait", "dropped"),
)
"""Entries of a row besides the metrics of learner, memory and task."""
FINAL_SHARE = 0.1
"""Fraction of a run, at its end, over which the summary's final numbers are means."""
MUCH_CLIPPED = 10.0
"""Ratio of gradient norm to max_grad_norm above which advice is given."""


class LogPoint(NamedTuple):
    """The state of a run at a log point, every `log_every` updates."""

    update: int
    """Number of updates made."""
    seconds: float
    """Seconds of training."""
    rate: float
    """Environment steps per second over all seeds, since the last log point."""
    sums: dict[str, Float[Array, "..."]]
    """Sums over the updates since then, as in `SeedState.sums`."""
    measured: dict[str, Any]
    """Measures of the program since then."""


class RunLog(Protocol):
    """Records a run at its log points. A checkpoint may contain a part of the record."""

    def open(self, update: int, meta: dict[str, Any]) -> None:
        """Begins after `update` updates, with the result of `meta` at the checkpoint."""

    def rows(self) -> list[Row]:
        """The rows of metrics that existed when it was opened."""
        return []

    def log(self, point: LogPoint) -> Row | None:
        """Logs a point, and returns the row of metrics for the run's listeners, if any."""

    def sync(self) -> None:
        """Waits until everything that the next checkpoint relies on is on disk."""

    def meta(self) -> dict[str, Any]:
        """JSON values to store in a checkpoint."""
        return {}

    def close(self) -> None:
        """Closes the log."""


class MetricsFile(RunLog):
    """The run's metrics.jsonl, to which one JSON object per line is appended.

    Every method raises `UserError` if the disk is full or cannot be written to. `log` is called
    with a line about every row that was moved or dropped.
    """

    def __init__(self, path: Path, config: TrainConfig, log: Callable[[str], None]):
        self._path, self._config, self._log = path / METRICS, config, log
        self._file: RowFile | None = None

    def open(self, update: int, meta: dict[str, Any]) -> None:
        """Opens the file and drops the rows that the run will write again.

        These are the rows after the checkpoint's update, and a row that was written early because
        the run had reached its end.
        """
        log_every = self._config.log_every

        def stays(row: Row) -> bool:
            return row["update"] <= update and row["update"] % log_every == 0

        ended = update >= self._config.updates
        self._file = RowFile(self._path, {"update": int, **_KINDS}, None if ended else stays)
        for line in self._file.mended:
            self._log(line)
        if self._file.dropped:
            rows = "1 row is" if self._file.dropped == 1 else f"{self._file.dropped} rows are"
            self._log(f"{self._path}: {rows} dropped, to be written again from update {update} on")

    def rows(self) -> list[Row]:
        return self._opened().rows

    def log(self, point: LogPoint) -> Row:
        """Appends a row and passes it to the operating system."""
        row = make_row(point, self._config)
        self._opened().append([finite(row)])
        return row

    def sync(self) -> None:
        self._opened().sync()

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _opened(self) -> RowFile:
        assert self._file is not None, "not open"
        return self._file


def refuse_taken_names(config: TrainConfig, names: Sequence[str]) -> None:
    """Refuses a task with a metric whose name has another meaning in the rows of runs.

    Raises:
        UserError: naming the metric.
    """
    for name in names:
        taken = name in _COLUMNS or name.startswith(EVALUATED)
        if taken or name in config.learner.metrics or describes_updates(name):
            chosen = name in config.wrappers.metrics
            raise UserError(
                f"{config.env} has a metric {name!r}, a name that rows of metrics use for the "
                "training itself: "
                + (f"leave {name} out of wrappers.metrics" if chosen else "rename it")
            )


def make_row(point: LogPoint, config: TrainConfig) -> Row:
    """One row of metrics.jsonl; the point's sums may have a leading axis of seeds.

    Returns:
        "update", "steps" (of one seed), "seconds" of training and "rate"; the program's measures;
        and for every metric a list over seeds: means over the row's updates for those of the loss,
        means over its episodes for those of episodes, None if no episode ended; "episodes" is their
        number. Metrics that only a learner of your own has are called "learner.NAME".
    """
    update, count = point.update, (point.update - 1) % config.log_every + 1
    sums = jax.device_get(point.sums)
    values = {n: np.atleast_1d(np.asarray(v, np.float64)) for n, v in sums.items()}
    episodes, own = values.pop("episodes"), config.learner.metrics
    row: Row = {"update": update, "steps": update * config.steps_per_update}
    row |= {"seconds": round(point.seconds, 3), "rate": round(point.rate, 3)}
    row["episodes"] = [int(n) for n in episodes]
    for name, total in values.items():
        if name in own and not describes_updates(name):
            name = OWN_METRIC + name
        if describes_updates(name):
            row[name] = [finite(float(v / count), 6) for v in total]
        else:
            pairs = zip(total, episodes, strict=True)
            row[name] = [finite(float(v / n), 6) if n else None for v, n in pairs]
    return row | point.measured


def read_metrics(path: str | Path) -> list[Row]:
    """The rows of a run, oldest first, without a line cut short by a kill.

    A damaged row is left out, with a `DamagedRowWarning` that names it.

    Args:
        path: the run's folder.

    Raises:
        UserError: if there is no such folder, or it does not belong to a run.
    """
    if not isinstance(path, str | PathLike):
        raise UserError(f"give the path of a run's folder, got {one_line(path)}")
    if not Path(path).is_dir():
        raise UserError(f"there is no run in {path}: no such folder")
    if not any((Path(path) / name).exists() for name in (METRICS, CONFIG)):
        raise UserError(f"{path} is not a run: it has no {METRICS}")
    return [line.row for line in json_lines.read(Path(path) / METRICS, _KINDS)]


def read_rows(run: Path) -> list[Row]:
    """The rows of a run, as from `read_metrics`, but at least one.

    Raises:
        UserError: if there is no row yet.
    """
    rows = read_metrics(run)
    if not rows:
        raise UserError(f"{run} has no metrics: it is not a run, or has made too few updates")
    return rows


def summarise(
    rows: list[Row],
    config: TrainConfig,
    *,
    seconds: float,
    parameters: int,
    update: int | None = None,
    best: Sequence[Score] = (),
) -> Row:
    """The summary of a run.

    Args:
        seconds: of training.
        update: the number of updates made, if larger than in the last row.
        best: the scores of the best agents, for each seed.

    Returns:
        The configuration's digest, versions, time and rate; "final": for every episode metric the
        mean over the last tenth of the run for each seed, the mean of these, and its 95% bootstrap
        interval over seeds (None with one seed); "evaluation": the newest one with its "steps",
        "episodes" of each seed and "actions", and "means" in the form of "final", or None without
        evaluations; "best": the scores as "steps" and "return"; "best_by": their source,
        "evaluation" or "training".
    """
    logged = rows[-1]["steps"] if rows else 0
    updates = update or (rows[-1]["update"] if rows else 0)
    steps: int = updates * config.steps_per_update
    columns = [n for n, values in (rows[-1] if rows else {}).items() if isinstance(values, list)]
    columns = [n for n in columns if n != "episodes" and not n.startswith(EVALUATED)]
    names = [n for n in columns if not describes_updates(n)]
    window = [row for row in rows if row["steps"] > (1 - FINAL_SHARE) * logged]
    return {
        "digest": config.digest(),
        "versions": versions(),
        "env": config.env,
        "memory": config.memory,
        "parameters": parameters,
        "seeds": config.seeds,
        "steps": steps,
        "updates": updates,
        "seconds": round(seconds, 3),
        "rate": round(steps * config.seeds / seconds, 1) if seconds else None,
        "final": {name: _final(window, name) for name in names},
        "evaluation": _newest_evaluation(rows, config),
        "best": [
            {"steps": score.update * config.steps_per_update, "return": score.mean}
            for score in best
        ],
        "best_by": "evaluation" if config.evaluate_every else "training",
    }


def _newest_evaluation(rows: Sequence[Row], config: TrainConfig) -> Row | None:
    for row in reversed(rows):
        found = {n.removeprefix(EVALUATED): v for n, v in row.items() if n.startswith(EVALUATED)}
        if found:
            how = {"episodes": config.evaluate_episodes, "actions": config.evaluate_actions}
            means = {name: over_seeds(values) for name, values in found.items()}
            return {"steps": row["steps"], **how, "means": means}
    return None


def final_text(final: Row | None) -> str:
    """The final value of a metric in a summary as text: mean [low, high], or "".

    If no episode of some seeds ended, the text has the number of the others.
    """
    if final is None or final["mean"] is None:
        return ""
    low, high = final["interval"] or (math.nan, math.nan)
    text = format(Interval(final["mean"], low, high), ".2f")
    seeds = len(final["per_seed"])
    there = seeds - final["per_seed"].count(None)
    return text if there == seeds else f"{text}, {there} of {seeds} seeds"


def advice(rows: Sequence[Row], config: TrainConfig) -> str | None:
    """One line of advice, or None.

    Large returns cause a large error of the value, whose gradient goes through the memory like the
    policy's. After clipping to max_grad_norm, little is left of the policy's (docs/training.md has
    an example). Only Gymnasium environments have the wrapper that scales rewards.
    """
    limit = config.learning.max_grad_norm
    scaled = config.wrappers.normalise_rewards or config.wrappers.reward_scale != 1.0
    if limit is None or scaled or not default_settings(config.env).normalise_rewards:
        return None
    norms = [norm for row in rows for norm in row.get("grad_norm", ()) if norm is not None]
    length = statistics.median(norms) if norms else 0.0
    if length <= MUCH_CLIPPED * limit:
        return None
    return (
        f"the median gradient norm was {length:.3g}, clipped to {limit:g}: "
        "rewards are large for these settings; --wrappers.normalise-rewards may speed up learning"
    )


def mean_of_rows(pairs: Iterable[tuple[float | None, int]]) -> float | None:
    """The mean over the episodes of several rows, each given as mean and number; None without
    episodes."""
    known = [(mean, count) for mean, count in pairs if count and mean is not None]
    total = sum(count for _, count in known)
    return sum(mean * count for mean, count in known) / total if total else None


def _final(window: list[Row], name: str) -> Row:
    totals = [
        mean_of_rows((row[name][seed], row["episodes"][seed]) for row in window)
        for seed in range(len(window[-1][name]))
    ]
    return over_seeds(totals)


def over_seeds(totals: list[float | None]) -> Row:
    """The numbers of all seeds, their mean, and with two or more its 95% bootstrap interval."""
    known = [total for total in totals if total is not None]
    mean = sum(known) / len(known) if known else None
    interval = None
    if len(known) >= 2:
        found = bootstrap_interval(known)
        interval = [found.low, found.high]
    return {"per_seed": totals, "mean": mean, "interval": interval}
