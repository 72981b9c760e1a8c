"""An inspection as data: JSON, and one CSV file for each kind of number."""

import csv
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clew.files import write_text
from clew.inspect.inspection import MEASURES, Inspection

DIGITS = 7
"""Significant digits, what a 32-bit number holds."""


def to_json(found: Inspection) -> dict[str, Any]:
    """All numbers as JSON values; unknown numbers are None."""
    several = {"questions": dataclasses.asdict(found.questions)}
    for name in ("name", "memory", "task", "steps", "episodes", "left_out", "greedy"):
        several[name] = getattr(found, name)
    return several | {
        "metrics": _json_values(found.metrics),
        "lengths": found.lengths.tolist(),
        "decisions": found.decisions.tolist(),
        "state_size": found.state_size,
        "gradient": _json_values(found.gradient._asdict()),
        "occlusion": _json_values(found.occlusion._asdict()),
        "map_steps": found.map_steps.tolist(),
        "gradient_map": _json_values(found.gradient_map._asdict()),
        "occlusion_map": _json_values(found.occlusion_map._asdict()),
        "memory_lengths": {
            f"{way} {measure}": _json_values(length._asdict() | {"mean": length.mean._asdict()})
            for (way, measure), length in found.memory_lengths.items()
        },
        "first_share": {
            way: _json_values(found.first_share(way)) for way in ("gradient", "occlusion")
        },
        "probes": [
            _json_values(probe._asdict() | {"accuracy": [a._asdict() for a in probe.accuracy]})
            for probe in found.probes
        ],
        "maps": {name: _json_values(traced._asdict()) for name, traced in found.maps.items()},
    }


def write_tables(found: Inspection, place: Path) -> list[Path]:
    """Writes influence.csv, influence_map.csv, memory_length.csv, probe.csv and maps.csv.

    Returns:
        Their paths.
    """
    tables = {
        "influence": _influence_rows,
        "influence_map": _map_rows,
        "memory_length": _length_rows,
        "probe": _probe_rows,
        "maps": _trace_rows,
    }
    for name, rows in tables.items():
        write_text(place / f"{name}.csv", _comma_separated(rows(found)))
    return [place / f"{name}.csv" for name in tables]


def _influence_rows(found: Inspection) -> Iterator[dict[str, Any]]:
    for way in ("gradient", "occlusion"):
        by_measure = getattr(found, way)._asdict()
        for episode, decision in enumerate(found.decisions):
            for step in range(decision + 1):
                row = {"way": way, "episode": episode, "decision": decision, "step": step}
                row["lag"] = decision - step
                yield row | {m: by_measure[m][episode, step] for m in MEASURES}


def _map_rows(found: Inspection) -> Iterator[dict[str, Any]]:
    for way in ("gradient", "occlusion"):
        by_measure = getattr(found, f"{way}_map")._asdict()
        for number, decision in enumerate(found.map_steps):
            for step in range(decision + 1):
                row = {"way": way, "decision": decision, "step": step}
                yield row | {m: by_measure[m][number, step] for m in MEASURES}


def _length_rows(found: Inspection) -> Iterator[dict[str, Any]]:
    for (way, measure), length in found.memory_lengths.items():
        row = {"way": way, "measure": measure, "share": length.share, **length.mean._asdict()}
        low, half, high = length.quartiles
        yield row | {"quartile_1": low, "median": half, "quartile_3": high}


def _probe_rows(found: Inspection) -> Iterator[dict[str, Any]]:
    for probe in found.probes:
        columns = (probe.steps, probe.accuracy, probe.majority, probe.episodes)
        for step, accuracy, majority, episodes in zip(*columns, strict=True):
            row = {"label": probe.label, "source": probe.source, "step": step}
            row |= {"accuracy": accuracy.mean, "low": accuracy.low, "high": accuracy.high}
            yield row | {"majority": majority, "episodes": episodes}


def _trace_rows(found: Inspection) -> Iterator[dict[str, Any]]:
    for name, traced in found.maps.items():
        for step, mean in enumerate(traced.mean):
            row = {"map": name, "kind": traced.kind, "step": step, "past": "", "value": mean}
            yield row
            if traced.pairs is not None:
                for past in range(step + 1):
                    yield row | {"past": past, "value": traced.pairs[step, past]}


def _comma_separated(rows: Iterator[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer: Any = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(text, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _written(value) for name, value in row.items()})
    return text.getvalue()


def _written(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return format(float(value), f".{DIGITS}g") if np.isfinite(value) else ""
    return value


def _json_values(value: Any) -> Any:
    """As JSON values: lists, rounded numbers, None for numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _json_values(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray):
        return _json_values(value.tolist())
    if isinstance(value, list | tuple):
        return [_json_values(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return value
