"""The approximation study: its closed forms, bounds and proofs checked by numbers; its command."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.approximation import __main__ as tried
from benchmarks.approximation import attention, draws, errors, figures, schemes, tables
from benchmarks.approximation import search as searched
from benchmarks.approximation.kernels import KERNELS, SHIPPED, from_waves

GATES = (0.05, 0.3, 0.7)


@pytest.mark.parametrize("r", [1, 2, 3, 4, 7, 12])
def test_the_closed_forms_over_time(r: int) -> None:
    """They equal the sum over a whole period, and that equals the mean over times."""
    for gate in GATES:
        for name, square in (
            ("thesis", errors.thesis_square),
            ("half_wave", errors.half_wave_square),
            ("full_wave", errors.full_wave_square),
            ("odd_wave", errors.full_wave_square),
        ):
            waves = SHIPPED[name].waves
            assert waves is not None
            expected = schemes.square_over_time(waves(r), gate)
            assert square(r, gate) == pytest.approx(expected, rel=1e-9)
            moments = [from_waves(waves(r), 200, first) for first in range(len(waves(r).table))]
            mean = np.mean([errors.square_at(delta, gate) for delta in moments])
            assert mean == pytest.approx(expected, rel=1e-6)


def test_the_expected_error_is_that_of_draws() -> None:
    """`norms` is the norm of the matrices; its mean square equals the closed form."""
    values, keys = draws.draw_normal(2000, 12, 3, seed=1)
    for name, gate in (("thesis", 0.2), ("half_wave", 0.05), ("full_wave", 0.2)):
        wrong = KERNELS[name].matrix(3, 12) - np.eye(12)
        left = errors.decays(gate, 12)[:, None]
        matrices = (left * values).transpose(0, 2, 1) @ wrong @ (left * keys)
        norms = draws.norms(wrong, gate, draws.grams(values, keys))
        np.testing.assert_allclose(norms, np.linalg.norm(matrices, axis=(1, 2)), rtol=1e-9)
        expected = 9 * errors.square_at(wrong + np.eye(12), gate) * np.sum(left**4)
        assert np.mean(norms**2) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("gate", [0.01, *GATES, 0.99, 1.0])
def test_the_full_wave_beats_the_thesis_always(gate: float) -> None:
    """At every time, r and gate: entry by entry its delta is nearer, or equally near but older."""
    for r in (1, 2, 3, 5, 8, 21, 64):
        for time in (1, 2, 3, 7, 8, 30, 100):
            thesis = errors.square_at(KERNELS["thesis"].matrix(r, time), gate)
            for name in ("full_wave", "odd_wave"):
                ours = errors.square_at(KERNELS[name].matrix(r, time), gate)
                assert ours < thesis
                assert ours == pytest.approx(errors.full_wave_square(r, gate, time), abs=1e-12)
        assert errors.full_wave_square(r, gate) <= errors.half_wave_square(r, gate)


def test_nothing_of_its_rank_beats_the_window() -> None:
    """Eckart and Young: not even a matrix fitted by alternating least squares."""
    random = np.random.default_rng(0)
    for gate in GATES:
        square = errors.square_at(KERNELS["window"].matrix(2, 20), gate)
        assert square == pytest.approx(schemes.least_square(3, gate, 20), rel=1e-9)
        left = errors.decays(gate, 20)
        target = np.diag(left**2)
        a = b = random.standard_normal((20, 3))
        for _ in range(200):
            b = np.linalg.lstsq(a, target, rcond=None)[0].T
            a = np.linalg.lstsq(b, target.T, rcond=None)[0].T
        fitted = np.sum((a @ b.T - target) ** 2) / np.sum(left**4)
        assert fitted >= square * (1 - 1e-9)


def test_a_step_of_the_proof() -> None:
    """f' <= rho^2 f + h / (2 - h), and the determinant gives log(1 - h) a mean of log q."""
    random = np.random.default_rng(0)
    rho, vectors = 0.6, 3
    waves = random.standard_normal((400, vectors))
    left, squared, kept, leverage = np.eye(vectors), np.eye(vectors), [], []
    start = np.linalg.slogdet(left)[1]
    for wave in waves:
        left = rho * left + np.outer(wave, wave)
        squared = rho**2 * squared + np.outer(wave, wave)
        ratio = np.linalg.solve(left, squared)
        kept.append(np.trace(ratio @ ratio))
        leverage.append(wave @ np.linalg.solve(left, wave))
    h, f = np.array(leverage), np.array(kept)
    assert np.all(f[1:] <= rho**2 * f[:-1] + (h / (2 - h))[1:] + 1e-12)
    grown = np.linalg.slogdet(left)[1] - start
    assert np.sum(np.log1p(-h)) == pytest.approx(400 * vectors * np.log(rho) - grown)
    q = rho**vectors
    assert np.mean(f) * (1 - rho**2) <= (1 - q) / (1 + q)


@pytest.mark.parametrize("kind", searched.CLASSES)
def test_the_search_finds_the_bound_and_nothing_below(kind: str) -> None:
    """Descent in every class of schemes ends at the proved minimum, the full wave's error."""
    least = schemes.least_square_of_waves(2, 0.3, any_scale=True)
    found = searched.search(kind, 2, 0.3, starts=2)
    assert least * (1 - 1e-9) <= found <= least * (1 + 1e-4)
    waves = SHIPPED["full_wave"].waves
    assert waves is not None
    scaled = waves(1)._replace(scale=waves(1).scale * schemes.best_scale(waves(1), 0.3))
    assert schemes.square_over_time(scaled, 0.3) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("kind", ["waves", "same", "signed", "different", "moving"])
def test_the_search_descends_along_its_gradient(kind: str) -> None:
    waves = kind == "waves"
    objective = (
        searched.waves_objective(0.3, 2) if waves else searched.table_objective(kind, 5, 2, 0.3)
    )
    size = {"waves": 5, "signed": 12, "different": 20}.get(kind, 10)
    x = np.random.default_rng(0).standard_normal(size)
    step = 1e-6 * np.eye(size)
    slope = [(objective(x + s)[0] - objective(x - s)[0]) / 2e-6 for s in step]
    np.testing.assert_allclose(objective(x)[1], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_bounds_hold(name: str) -> None:
    """On C_t by the longest vectors, on a_t by the largest value, for any inputs."""
    random = np.random.default_rng(0)
    for gate in GATES:
        episode = attention.left_of(attention.draw_inputs(attention.Gates("", gate), 40, random))
        delta = KERNELS[name].matrix(3, 40)
        left = errors.decays(gate, 40)[:, None]
        longest = [np.linalg.norm(x / left, axis=1).max() for x in (episode.values, episode.keys)]
        state = np.linalg.norm(episode.values.T @ (delta - np.eye(40)) @ episode.keys)
        assert state <= schemes.state_bound(delta, gate) * longest[0] * longest[1]
        wrong = np.abs(episode.attend(delta) - episode.attend(np.eye(40))).max()
        assert wrong <= schemes.attention_bound(delta, gate) * np.abs(episode.values / left).max()


def test_the_command_writes_every_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """On a small grid; the pictures, which take long, are drawn from it but not written."""
    monkeypatch.setattr(tables, "FIGURE_R", (1, 2, 7))
    monkeypatch.setattr(tables, "FIGURE_GATES", (0.1, 0.5, 1.0))
    monkeypatch.setattr(tables, "LONGEST", 5)
    monkeypatch.setattr(tables, "SINGULAR_DRAWS", 1)
    monkeypatch.setattr(tried, "SOME_R", (1, 3, 7, 15))
    monkeypatch.setattr(tried, "SOME_GATES", (0.3, 0.9))
    monkeypatch.setattr(tried, "search_rows", lambda: [{"found_square": 2.0, "least_square": 1}])
    monkeypatch.setattr(figures, "write", lambda figure, path: path)
    folder = tmp_path / "here"
    tried.main(folder, draws=3)
    told = capsys.readouterr()
    assert "full wave against thesis: nearer in 100.0% of 9 settings" in told.out
    assert "2.000000 of the proved bound" in told.out
    assert "Figure 4.1, gate 0.5" in told.err
    with (folder / "figure-4-1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 3 * 3
    by_set = {row["set"]: row for row in rows if (row["r"], row["gate"]) == ("2", "1")}
    assert float(by_set["thesis"]["mean_error"]) > 100
    assert float(by_set["full_wave"]["mean_error"]) < 1e-9
    of_figure = {"figure-4-1", "over-time"}
    assert {path.stem for path in folder.iterdir()} == of_figure | {
        "sets",
        "bounds",
        "attention",
        "search",
    }
