"""Every number of the study, as rows for CSV files."""

import csv
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.approximation import draws as drawing
from benchmarks.approximation import errors
from benchmarks.approximation.kernels import KERNELS

from clew.files import comma_separated, write_text

Row = dict[str, Any]
Log = Callable[[str], None]

TIME, SIZE = 100, 128
"""Of Figure 4.1."""
FIGURE_R = tuple(range(1, 65))
FIGURE_GATES = (*(round(0.04 * n - 0.02, 2) for n in range(1, 26)), 1.0)
FIGURE_KERNELS = ("thesis", "code", "half_wave", "full_wave")
LONGEST = 200
OVER_TIME = ("thesis", "code", "half_wave", "full_wave", "window")
SINGULAR_DRAWS = 10


def figure_rows(draws: int, seed: int, log: Log) -> list[Row]:
    """Figure 4.1: the error at t = 100 against r and the gate, as drawn and as calculated."""
    values, keys = drawing.draw_normal(draws, TIME, SIZE, seed)
    drawn = drawing.grams(values, keys)
    rows: list[Row] = []
    for gate in FIGURE_GATES:
        log(f"Figure 4.1, gate {gate}")
        true = drawing.norms(np.eye(TIME), gate, drawn)
        some = slice(0, SINGULAR_DRAWS)
        singular = drawing.least_norms(values[some], keys[some], gate)
        for r in FIGURE_R:
            beyond = np.sqrt(np.sum(singular[:, r + 1 :] ** 2, axis=1))
            for name in FIGURE_KERNELS:
                delta = KERNELS[name].matrix(r, TIME)
                error = drawing.norms(delta - np.eye(TIME), gate, drawn)
                rows.append(
                    {"set": name, "r": r, "vectors": r + 1, "gate": gate}
                    | {"mean_error": np.mean(error), "std_error": np.std(error, ddof=1)}
                    | {"mean_relative_error": np.mean(error / true)}
                    | {"calculated_error": _calculated(delta, gate)}
                    | {"calculated_relative_error": math.sqrt(errors.square_at(delta, gate))}
                    | {"least_of_rank_relative": np.mean(beyond / true[some])}
                )
    return rows


def _calculated(delta: np.ndarray, gate: float) -> float:
    """The root of the expected square of the error itself."""
    state = np.sum(errors.decays(gate, len(delta)) ** 4)
    return SIZE * math.sqrt(errors.square_at(delta, gate) * state)


def time_rows() -> list[Row]:
    """The error against t, for r = 7 and three gates."""
    return [
        {"set": name, "r": 7, "gate": gate, "time": time}
        | {"relative_error": math.sqrt(errors.square_at(KERNELS[name].matrix(7, time), gate))}
        for name in OVER_TIME
        for gate in (0.02, 0.1, 0.3)
        for time in range(1, LONGEST + 1)
    ]


def write(rows: Mapping[str, list[Row]], folder: Path) -> Mapping[str, list[Row]]:
    """Writes each table as NAME.csv into a folder, and returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in rows.items():
        write_text(folder / f"{name}.csv", comma_separated(table, digits=5))
    return rows


def read(folder: Path) -> dict[str, list[Row]]:
    """The tables that `write` wrote."""
    return {
        path.stem: [
            {name: _value(text) for name, text in row.items()}
            for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
        ]
        for path in folder.glob("*.csv")
    }


def _value(text: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text or None
