"""An inspection as data: JSON, and one CSV file for each kind of number."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clew.files import comma_separated, finite, write_text
from clew.inspect.inspection import MEASURES, Inspection

DIGITS = 7
"""Significant digits of numbers in files, those of single precision."""


def to_json(found: Inspection) -> dict[str, Any]:
    """All numbers as JSON values; unknown numbers are None."""
    values = vars(found) | {
        "questions": dataclasses.asdict(found.questions),
        "memory_lengths": {
            f"{way} {measure}": length for (way, measure), length in found.memory_lengths.items()
        },
        "first_share": {way: found.first_share(way) for way in ("gradient", "occlusion")},
    }
    return finite(values, DIGITS)


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
        write_text(place / f"{name}.csv", comma_separated(list(rows(found)), DIGITS))
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
    for way, influence in (("gradient", found.gradient_map), ("occlusion", found.occlusion_map)):
        by_measure = influence._asdict()
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
