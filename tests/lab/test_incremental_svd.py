"""Incremental SVD in place of AReLiT: exact while its rank suffices, then the nearest matrix."""

import csv
from pathlib import Path

import numpy as np
import pytest
from benchmarks.approximation import attention, figures
from benchmarks.approximation import incremental_svd as svd
from benchmarks.approximation.attention import Gates, draw_inputs


def test_a_step_is_the_nearest_of_its_rank() -> None:
    """With gates for each entry, for several draws at once; orthonormal before and after."""
    random = np.random.default_rng(0)
    factors = svd.empty((2,), (5, 7), 3)
    for step in range(6):
        keep = random.uniform(size=(2, 5)), random.uniform(size=(2, 7))
        new = random.standard_normal((2, 5)), random.standard_normal((2, 7))
        target = keep[0][..., None] * factors.matrix() * keep[1][:, None]
        target = target + new[0][..., None] * new[1][:, None]
        u, s, v = np.linalg.svd(target)
        nearest = (u[..., :3] * s[:, None, :3]) @ v[:, :3]
        factors = svd.add(factors, keep, new)
        np.testing.assert_allclose(factors.matrix(), nearest, atol=1e-12)
        if step >= 2:
            for side in (factors.left, factors.right):
                np.testing.assert_allclose(
                    np.swapaxes(side, 1, 2) @ side, [np.eye(3)] * 2, atol=1e-12
                )


def test_it_is_exact_while_the_rank_suffices_and_never_below_the_best() -> None:
    values, keys = np.random.default_rng(1).standard_normal((2, 4, 9, 6))
    errors = np.array(svd.errors_over_time(values, keys, 0.1, 4))
    assert errors[:4].max() < 1e-12
    best = svd.drawing.least_norms(values, keys, 0.1)[:, 4:]
    least = np.sqrt(np.sum(best**2, axis=1))
    assert np.all(errors[-1] >= least * (1 - 1e-9)) and np.all(errors[-1] < 2 * least)
    assert np.array(svd.errors_over_time(values, keys, 0.1, 6)).max() < 1e-12


def test_the_output_is_exact_with_the_whole_rank() -> None:
    episodes = [draw_inputs(Gates("", mean=-1.0), 12, np.random.default_rng(2)) for _ in range(2)]
    state, attention, scaled = svd.svd_attention_errors(12, episodes)
    assert max(state, attention, scaled) < 1e-6
    assert svd.svd_attention_errors(2, episodes).attention > 0.01


def test_the_command_writes_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RS": (1, 7, 15),
        "GATES": (0.1, 0.5),
        "DRAWS_OVER_TIME": 2,
        "LONGEST": 12,
        "SIZE": 16,
        "STEPS": 2,
        "TURNS": 1,
    }.items():
        monkeypatch.setattr(svd, name, value)
    monkeypatch.setattr(attention, "REGIMES", attention.REGIMES[4:6])
    monkeypatch.setattr(figures, "write", lambda figure, path: path)
    svd.main(tmp_path, draws=2)
    with (tmp_path / "state.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 3 * 2
    error = {row["set"]: float(row["mean_error"]) for row in rows if row["gate"] == "0.1"}
    assert error["best_of_rank"] <= error["incremental_svd"] < error["full_wave"]
    assert {path.stem for path in tmp_path.iterdir()} == {"state", "over-time", "attention", "cost"}
