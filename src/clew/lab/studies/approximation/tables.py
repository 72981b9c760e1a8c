"""Every number of the study, as rows for CSV files."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from clew.lab.studies.approximation import draws as drawing
from clew.lab.studies.approximation import errors
from clew.lab.studies.approximation.kernels import KERNELS, SHIPPED, Kernel
from clew.lab.studies.approximation.search import CLASSES, search

Row = dict[str, Any]
Log = Callable[[str], None]

TIME, SIZE = 100, 128
"""Of Figure 4.1."""
FIGURE_R = tuple(range(1, 65))
FIGURE_GATES = (*(round(0.04 * n - 0.02, 2) for n in range(1, 26)), 1.0)
FIGURE_KERNELS = ("thesis", "code", "half_wave", "full_wave")
SOME_R = (1, 2, 3, 7, 15, 31)
SOME_GATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
LONGEST = 200
OVER_TIME = ("thesis", "code", "half_wave", "full_wave", "window")
ATTENDING = ("thesis", "code", "half_wave", "full_wave", "odd_wave", "shifted_half_wave", "window")
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
    """Root of the expected square of the error itself."""
    state = np.sum(errors.decays(gate, len(delta)) ** 4)
    return SIZE * math.sqrt(errors.square_at(delta, gate) * state)


def set_rows() -> list[Row]:
    """Every set of waves: relative errors of C_t over time and at t = 100, and their bounds."""
    return [_set_row(*case) for case in _cases(KERNELS.items())]


def _cases(kernels: Iterable[tuple[str, Kernel]]) -> list[tuple[str, Kernel, int, float]]:
    return [(n, k, r, g) for n, k in kernels for r in SOME_R for g in SOME_GATES]


def _set_row(name: str, kernel: Kernel, r: int, gate: float) -> Row:
    vectors, least = r + 1, errors.least_square_of_waves
    row = {"set": name, "r": r, "vectors": vectors, "gate": gate}
    square, scaled = errors.least_square(vectors, gate, 10**6), None
    if kernel.waves is not None:
        waves = kernel.waves(r)
        square = errors.square_over_time(waves, gate)
        factor = errors.best_scale(waves, gate)
        scaled = errors.square_over_time(waves._replace(scale=waves.scale * factor), gate)
    return row | {
        "relative_error_over_time": math.sqrt(square),
        "with_best_scale": None if scaled is None else math.sqrt(scaled),
        "relative_error_at_100": math.sqrt(errors.square_at(kernel.matrix(r, TIME), gate)),
        "least_of_waves": math.sqrt(least(vectors, gate)),
        "least_of_waves_any_scale": math.sqrt(least(vectors, gate, any_scale=True)),
        "least_of_rank": math.sqrt(errors.least_square(vectors, gate, 10**6)),
    }


def time_rows() -> list[Row]:
    """The error against t, for r = 7 and three gates."""
    return [
        {"set": name, "r": 7, "gate": gate, "time": time}
        | {"relative_error": math.sqrt(errors.square_at(KERNELS[name].matrix(7, time), gate))}
        for name in OVER_TIME
        for gate in (0.02, 0.1, 0.3)
        for time in range(1, LONGEST + 1)
    ]


def bound_rows() -> list[Row]:
    """Bounds on C_t and a_t at t = 100 that hold for every input, per unit of |v| and |k|."""
    rows: list[Row] = []
    for name, kernel, r, gate in _cases(SHIPPED.items()):
        delta = kernel.matrix(r, TIME)
        rows.append(
            {"set": name, "r": r, "gate": gate}
            | {"state_bound": errors.state_bound(delta, gate)}
            | {"attention_bound": errors.attention_bound(delta, gate)}
        )
    return rows


def attention_rows(draws: int, seed: int, log: Log) -> list[Row]:
    """C_t and a_t with features as in Algorithm 6, at a time drawn from 20..100."""
    kernels = {name: KERNELS[name] for name in ATTENDING}
    rows: list[Row] = []
    for gates in drawing.REGIMES:
        log(f"attention, gates {gates.label}")
        random = np.random.default_rng(seed)
        times = random.integers(20, TIME + 1, draws)
        episodes = [drawing.draw_episode(gates, int(time), random) for time in times]
        for r in SOME_R[:-1]:
            found = drawing.attention_errors(kernels, r, episodes)
            rows.extend(
                {"gates": gates.label, "r": r, "set": name} | error._asdict()
                for name, error in found.items()
            )
    return rows


def search_rows(log: Log) -> list[Row]:
    """What the search found, beside what is proved to be the least."""
    rows: list[Row] = []
    for vectors in (2, 3, 4, 6):
        for gate in (0.1, 0.3, 0.5):
            log(f"search, {vectors} vectors, gate {gate}")
            for kind, what in CLASSES.items():
                if vectors == 6 and kind not in ("weights", "waves"):
                    continue  # the larger tables take minutes and find the same
                rows.append(
                    {"class": kind, "what": what, "vectors": vectors, "gate": gate}
                    | {"found_square": search(kind, vectors, gate)}
                    | {"least_square": errors.least_square_of_waves(vectors, gate, True)}
                )
    return rows
