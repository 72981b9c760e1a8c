"""Incremental SVD in place of AReLiT: the state as the nearest matrix of its rank, kept up to date.

    python -m benchmarks.approximation.incremental_svd results/incremental-svd

The thesis (Pramanik, 2023, section 4.1 and chapter 6) names it as the alternative. C_t is kept as U
diag(s) V' of rank R. At each step the gates are applied to the state, l_t m_t' is added, and the
smallest of the R + 1 singular values is dropped (Brand, 2006, section 3; here a QR decomposition of
the gated state replaces his projections, since gates for each entry leave U and V no longer
orthogonal; with one gate for all entries it is the same). The errors are compared with those of
AReLiT's waves and of the best possible scheme, on the draws of Figure 4.1 and of the attention
output, and over time; the time of a step is measured too. Nothing is trained.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.approximation import draws as drawing
from benchmarks.approximation import figures, tables
from benchmarks.approximation.attention import (
    REGIMES,
    AttentionErrors,
    Episode,
    Inputs,
    attention_errors,
    attention_rows,
)
from benchmarks.approximation.kernels import KERNELS
from benchmarks.approximation.tables import LONGEST, SIZE, TIME, Row
from benchmarks.options import described
from matplotlib.figure import Figure

from clew.cli.tables import log
from clew.lab.bench.machine import call_seconds
from clew.lab.bench.timing import ratio
from clew.report.figures import COLOURS, new_figure

SEED, DRAWS, DRAWS_OVER_TIME = 0, 50, 10
RS = (1, 3, 7, 15, 31)
GATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
WAVES = ("thesis", "half_wave", "full_wave")
SVD, BEST = "incremental_svd", "best_of_rank"
LABELS = {name: KERNELS[name].label for name in WAVES} | {
    SVD: "incremental SVD",
    BEST: "best of the same rank",
}
STYLES = figures.STYLES | {SVD: (COLOURS[4], "-"), BEST: (COLOURS[6], ":")}
STEPS, TURNS = 100, 100
"""Steps in one time measurement, and number of measurements."""


class Factors(NamedTuple):
    """C = left diag(values) right', of rank at most R; left and right have orthonormal columns."""

    left: np.ndarray
    """[*draws, d_v, R]"""
    values: np.ndarray
    """[*draws, R]"""
    right: np.ndarray
    """[*draws, d_k, R]"""

    def matrix(self) -> np.ndarray:
        """[*draws, d_v, d_k]"""
        return (self.left * self.values[..., None, :]) @ np.swapaxes(self.right, -1, -2)


def empty(lead: tuple[int, ...], sizes: tuple[int, int], rank: int) -> Factors:
    """The decomposition of C = 0; QR makes orthonormal columns of zeros too."""
    left, right = (np.zeros((*lead, size, rank)) for size in sizes)
    return Factors(left, np.zeros((*lead, rank)), right)


def add(old: Factors, keep: tuple[Any, Any], new: tuple[Any, Any], numpy: Any = np) -> Factors:
    """The nearest matrix of its rank to (keep_v keep_k') * C + v k', by way of R + 1 columns.

    Args:
        old: C.
        keep: keep_v [*draws, d_v] and keep_k [*draws, d_k], the fraction that the gates keep.
        new: v and k, of the same shapes.
        numpy: the array module, NumPy or JAX's.
    """
    rank = old.values.shape[-1]
    bases, triangles = zip(
        *(
            numpy.linalg.qr(numpy.concatenate([k[..., None] * side, x[..., None]], -1))
            for k, side, x in zip(keep, (old.left, old.right), new, strict=True)
        ),
        strict=True,
    )
    inner = numpy.concatenate([old.values, numpy.ones_like(old.values[..., :1])], -1)
    core = (triangles[0] * inner[..., None, :]) @ numpy.swapaxes(triangles[1], -1, -2)
    u, s, v = numpy.linalg.svd(core, full_matrices=False)
    right = bases[1] @ numpy.swapaxes(v, -1, -2)[..., :rank]
    return Factors(bases[0] @ u[..., :rank], s[..., :rank], right)


def state_rows(draws: int, seed: int) -> list[Row]:
    """The error of C_t at t = 100, as in Figure 4.1."""
    values, keys = drawing.draw_normal(draws, TIME, SIZE, seed)
    drawn = drawing.grams(values, keys)
    rows: list[Row] = []
    for gate in GATES:
        log(f"state, gate {gate}")
        true = drawing.norms(np.eye(TIME), gate, drawn)
        singular = drawing.least_norms(values, keys, gate)
        for r in RS:
            found = {
                name: drawing.norms(KERNELS[name].matrix(r, TIME) - np.eye(TIME), gate, drawn)
                for name in WAVES
            }
            found[BEST] = np.sqrt(np.sum(singular[:, r + 1 :] ** 2, axis=1))
            *_, found[SVD] = errors_over_time(values, keys, gate, r + 1)
            rows.extend(
                {"set": name, "r": r, "vectors": r + 1, "gate": gate}
                | {"mean_error": np.mean(error), "mean_relative_error": np.mean(error / true)}
                for name, error in found.items()
            )
    return rows


def errors_over_time(
    values: np.ndarray, keys: np.ndarray, gate: float, rank: int
) -> list[np.ndarray]:
    """The error of C_t in every draw after each step, for one gate of all entries."""
    lead, time, sizes = len(values), values.shape[1], (values.shape[2], keys.shape[2])
    factors, true = empty((lead,), sizes, rank), np.zeros((lead, *sizes))
    keep = np.full((lead, sizes[0]), 1 - gate), np.full((lead, sizes[1]), 1 - gate)
    found: list[np.ndarray] = []
    for t in range(time):
        v, k = gate * values[:, t], gate * keys[:, t]
        factors = add(factors, keep, (v, k))
        true = (1 - gate) ** 2 * true + v[:, :, None] * k[:, None, :]
        found.append(np.linalg.norm(factors.matrix() - true, axis=(1, 2)))
    return found


def time_rows(seed: int) -> list[Row]:
    """The relative error of C_t against t at r = 7: does it grow?"""
    values, keys = drawing.draw_normal(DRAWS_OVER_TIME, LONGEST, SIZE, seed)
    rows: list[Row] = []
    for gate in (0.02, 0.1, 0.3):
        log(f"over time, gate {gate}")
        errors = errors_over_time(values, keys, gate, 8)
        for time, error in enumerate(errors, start=1):
            part = values[:, :time], keys[:, :time]
            true = drawing.norms(np.eye(time), gate, drawing.grams(*part))
            best = np.sqrt(np.sum(drawing.least_norms(*part, gate)[:, 8:] ** 2, axis=1))
            rows.append(
                {"r": 7, "gate": gate, "time": time}
                | {SVD: np.mean(error / true), BEST: np.mean(best / true)}
            )
    return rows


def output_errors(
    r: int, inputs: Sequence[Inputs], episodes: Sequence[Episode]
) -> dict[str, AttentionErrors]:
    """Errors of C_t and a_t with features as in Algorithm 6, of waves and of an SVD of rank r.

    A normaliser is kept beside the SVD, so that its state is no larger than that of AReLiT, whose
    first of r + 1 keys is the normaliser.
    """
    found = attention_errors({name: KERNELS[name] for name in WAVES}, r, episodes)
    return found | {SVD: svd_attention_errors(r, inputs)}


def svd_attention_errors(rank: int, episodes: Sequence[Inputs]) -> AttentionErrors:
    """The errors of C_t and a_t where C_t has this rank and the normaliser is exact."""
    sums = np.zeros(5)
    for given in episodes:
        sizes = given.values.shape[1], given.keys.shape[1]
        factors, true, normaliser = empty((), sizes, rank), np.zeros(sizes), np.zeros(sizes[1])
        for v, k, beta, gamma in zip(*given[:4], strict=True):
            factors = add(factors, (1 - beta, 1 - gamma), (beta * v, gamma * k))
            true = np.outer(1 - beta, 1 - gamma) * true + np.outer(beta * v, gamma * k)
            normaliser = (1 - gamma) * normaliser + gamma * k
        matrix, scale = factors.matrix(), given.query @ normaliser
        a, found = true @ given.query / scale, matrix @ given.query / scale
        sums += (np.sum(true**2), np.sum((matrix - true) ** 2), a @ a, a @ found, found @ found)
    return AttentionErrors.of(sums)


def cost_rows() -> list[Row]:
    """The time of a step of one head of 128, compiled by JAX, by turns."""
    rows: list[Row] = []
    for r in RS:
        log(f"cost, r = {r}")
        steps = {SVD: _svd_steps(r + 1), "full_wave": _wave_steps(r + 1)}
        found = call_seconds(steps, TURNS)
        times = ratio(found[SVD], found["full_wave"])
        rows.append(
            {"r": r, "vectors": r + 1, "state_of_svd": (r + 1) * (2 * SIZE + 1)}
            | {"state_of_waves": 2 * (r + 1) * SIZE}
            | {f"us_of_{name}": 1e6 * np.median(took) / STEPS for name, took in found.items()}
            | {"times": times.middle, "times_low": times.low, "times_high": times.high}
        )
    return rows


def _gated(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The fractions that the gates of values and keys keep, and let in, each [2, size]."""
    gates = jax.nn.sigmoid(x[:2])
    return 1 - gates, gates * x[2:]


def _svd_steps(rank: int) -> Callable[[], Any]:
    given = jnp.float32(np.random.default_rng(SEED).standard_normal((STEPS, 4, SIZE)))

    def step(factors: Factors, x: jax.Array) -> tuple[Factors, None]:
        keep, new = _gated(x)
        return add(factors, (keep[0], keep[1]), (new[0], new[1]), jnp), None

    run = jax.jit(lambda factors, xs: jax.lax.scan(step, factors, xs)[0])
    begin = jax.tree.map(jnp.float32, empty((), (SIZE, SIZE), rank))
    return lambda: run(begin, given)


def _wave_steps(rank: int) -> Callable[[], Any]:
    random, shapes = np.random.default_rng(SEED), ((STEPS, 4, SIZE), (STEPS, 1, rank, 1))
    given = tuple(jnp.float32(random.standard_normal(shape)) for shape in shapes)

    def step(kept: jax.Array, x: tuple) -> tuple[jax.Array, None]:
        keep, new = _gated(x[0])
        return keep[:, None] * kept + x[1] * new[:, None], None

    run = jax.jit(lambda kept, xs: jax.lax.scan(step, kept, xs)[0])
    begin = jnp.zeros((2, rank, SIZE), jnp.float32)
    return lambda: run(begin, given)


def draw(state: list[Row], times: list[Row], attention: list[Row]) -> Figure:
    """Errors against the gate, against time, and of a_t for every kind of gates; r = 7."""
    figure = new_figure(11, 4.2)
    gates, time, output = figure.subplots(1, 3)
    for name, label in LABELS.items():
        own = [row for row in state if (row["set"], row["r"]) == (name, 7)]
        xs, ys = [row["gate"] for row in own], [row["mean_relative_error"] for row in own]
        figures.draw_line(gates, name, xs, ys, "o", STYLES[name], label)
        own = [row for row in attention if (row["set"], row["r"]) == (name, 7)]
        if own:
            xs, ys = range(len(own)), [row["attention"] for row in own]
            figures.draw_line(output, name, xs, ys, "o", (STYLES[name][0], "none"), label)
    for gate, dash in ((0.02, "-"), (0.1, "--"), (0.3, "-.")):
        own = [row for row in times if row["gate"] == gate]
        xs = [row["time"] for row in own]
        style = (STYLES[SVD][0], dash)
        figures.draw_line(time, SVD, xs, [r[SVD] for r in own], "", style, f"SVD, gate {gate}")
        grey = ("0.6", dash)
        figures.draw_line(time, BEST, xs, [r[BEST] for r in own], "", grey, f"best, gate {gate}")
    time.set_ylim(figures.FLOOR / 1.3, 20)
    time.legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
    output.set_xticks(range(len(REGIMES)), [one.label for one in REGIMES], fontsize=8)
    output.tick_params("x", rotation=40)
    for name in output.get_xticklabels():
        name.set_horizontalalignment("right")
    gates.set_xlabel("gate c")
    time.set_xlabel("time step t")
    gates.set_title("state C at t = 100", loc="left", fontsize=11)
    time.set_title("state C over time", loc="left", fontsize=11)
    output.set_title("output a for each kind of gates", loc="left", fontsize=11)
    gates.set_ylabel("relative error")
    return figures.with_legend(figure, "Incremental SVD compared with waves, r = 7")


def compute(draws: int) -> dict[str, list[Row]]:
    """All tables, by the name of their file."""
    return {
        "state": state_rows(draws, SEED),
        "over-time": time_rows(SEED),
        "attention": attention_rows(RS[:-1], draws, SEED, output_errors, log),
        "cost": cost_rows(),
    }


def main(folder: Path, draws: int = DRAWS, *, redraw: bool = False) -> None:
    """Computes and writes everything."""
    rows = tables.read(folder) if redraw else tables.write(compute(draws), folder)
    picture = draw(rows["state"], rows["over-time"], rows["attention"])
    figures.write(picture, folder / "incremental-svd.png")


if __name__ == "__main__":
    parser = described(__doc__, draws=True)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    main(given.folder, redraw=given.redraw)
