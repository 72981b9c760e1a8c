"""Aggregates equal SciPy and rliable's formulas; the stratified bootstrap equals plain loops."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from clew.errors import UserError
from clew.stats import (
    Interval,
    Spread,
    interquartile_mean,
    intervals,
    mean_and_deviation,
    mean_of_tasks,
    median_of_tasks,
    optimality_gap,
    stratified_interval,
)

AGGREGATES = [interquartile_mean, mean_of_tasks, median_of_tasks, optimality_gap]


def scores(seeds: int, tasks: int, seed: int = 0) -> np.ndarray:
    """Skewed scores around 1, with a different level for each task."""
    rng = np.random.default_rng(seed)
    return rng.exponential(size=(seeds, tasks)) + np.linspace(-0.5, 0.5, tasks)


def test_deviation_divides_by_one_less() -> None:
    # Table C.2 of Makkink (2021): GTrXL at size 1, 0.660 and 0.589 over three seeds.
    published = mean_and_deviation([1.0, 1.0, -0.02])
    assert f"{published}" == "0.660 ± 0.589"
    assert published.seeds == 3
    data = scores(20, 1)[:, 0]
    mean, deviation, _ = mean_and_deviation(data)
    np.testing.assert_allclose((mean, deviation), (data.mean(), data.std(ddof=1)), rtol=1e-14)


@pytest.mark.parametrize("value", [0.0, 0.1, -0.3, 1e-300, 1e17])
def test_equal_seeds_have_no_deviation(value: float) -> None:
    assert mean_and_deviation([value] * 7) == Spread(value, 0.0, 7)
    assert mean_and_deviation([value, value * (1 + 1e-16), value]).deviation == 0.0


def test_a_large_offset_does_not_drown_the_deviation() -> None:
    exact = mean_and_deviation([2.0**40 + 1, 2.0**40 + 2, 2.0**40 + 3])
    assert exact == Spread(2.0**40 + 2, 1.0, 3)


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 30])
@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_aggregates_are_rliables(seeds: int, tasks: int) -> None:
    table = scores(seeds, tasks, seed=seeds)
    by_task = [float(sum(column)) / seeds for column in table.T]
    short = [max(1.0 - x, 0.0) for x in table.ravel()]
    np.testing.assert_allclose(interquartile_mean(table), stats.trim_mean(table, 0.25, axis=None))
    np.testing.assert_allclose(mean_of_tasks(table), math.fsum(by_task) / tasks)
    np.testing.assert_allclose(median_of_tasks(table), np.median(by_task))
    np.testing.assert_allclose(optimality_gap(table), math.fsum(short) / len(short))
    np.testing.assert_allclose(optimality_gap(table - 2, -1.0), optimality_gap(table))


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_leading_axes_are_kept(aggregate) -> None:
    tables = scores(5, 24).reshape(5, 4, 2, 3).transpose(1, 2, 0, 3)
    whole = aggregate(tables)
    assert whole.shape == (4, 2)
    for i in range(4):
        np.testing.assert_allclose(whole[i], [aggregate(tables[i, j]) for j in range(2)])


def test_the_middle_half_ignores_the_rest() -> None:
    table = np.arange(16.0).reshape(4, 4)
    far = np.where(table < 4, -1e9, np.where(table > 11, 1e9, table))
    assert interquartile_mean(table) == interquartile_mean(far) == 7.5
    assert optimality_gap(far, 1e9) == 1e9 - far.mean()


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_the_interval_is_that_of_plain_loops(aggregate) -> None:
    """Each task's seeds are drawn separately, one resample at a time; then quantiles are taken."""
    table = scores(6, 3)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(2000):
        drawn = [column[rng.integers(0, 6, 6)] for column in table.T]
        found.append(float(aggregate(np.stack(drawn, axis=1))))
    result = stratified_interval(table, aggregate, 0.9)
    assert result.mean == aggregate(table)
    # Quantiles of 2,000 values: four standard errors of their level, 0.05 +- 0.02, 0.95 +- 0.02.
    for end, level in ((result.low, 0.05), (result.high, 0.95)):
        assert np.quantile(found, level - 0.02) <= end <= np.quantile(found, level + 0.02)


def test_the_interval_of_one_task_is_scipys() -> None:
    data = scores(12, 1)
    result = stratified_interval(data, mean_of_tasks, 0.9)
    reference = stats.bootstrap(
        (data[:, 0],), np.mean, confidence_level=0.9, method="percentile", rng=2
    ).confidence_interval
    np.testing.assert_allclose(result[1:], reference, atol=0.03)


def test_stratified_over_tasks() -> None:
    """Tasks that differ from each other, but not among seeds, have a certain mean."""
    table = np.broadcast_to([0.0, 1.0, 5.0], (3, 3))
    assert stratified_interval(table, mean_of_tasks) == Interval(2.0, 2.0, 2.0)


def test_the_same_seed_gives_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    table = scores(5, 2)
    first = stratified_interval(table, seed=3)
    assert first == stratified_interval(table.copy(), seed=3)
    assert first != stratified_interval(table, seed=4)
    monkeypatch.setattr(intervals, "BLOCK", 1000)  # 100 resamples at a time
    np.testing.assert_allclose(stratified_interval(table, seed=3), first, atol=0.02)


def test_blocks_add_up() -> None:
    assert sum(intervals.blocks(9999, 10**6)) == 9999
    assert list(intervals.blocks(3, 10**9)) == [1, 1, 1]


def test_the_interval_covers_the_true_mean() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(250):
        interval = stratified_interval(rng.normal(3.0, 1.0, (12, 4)), mean_of_tasks, resamples=400)
        hits += interval.low <= 3.0 <= interval.high
    # The percentile interval is too narrow by about sqrt(11 / 12): 0.94 of them, +- 4 errors.
    assert 0.87 < hits / 250 < 0.99


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mean_and_deviation([]), "at least 2 seeds"),
        (lambda: mean_and_deviation([1.0]), r"shape \(1,\)"),
        (lambda: mean_and_deviation([[1.0, 2.0]]), r"shape \(1, 2\)"),
        (lambda: mean_and_deviation(["a", "b"]), "numbers"),
        (lambda: mean_and_deviation([1.0, math.inf]), r"got inf at \[1\]"),
        (lambda: interquartile_mean(np.zeros(3)), r"\[..., seeds, tasks\]"),
        (lambda: median_of_tasks(np.zeros((0, 3))), "not empty"),
        (lambda: mean_of_tasks([[1.0, math.nan]]), r"got nan at \[0, 1\]"),
        (lambda: optimality_gap(np.zeros((2, 2)), math.nan), "target"),
        (lambda: mean_of_tasks(np.ma.masked_less([[1.0, -99.0]], 0.0)), "no masked numbers"),
        (lambda: stratified_interval(np.eye(2), seed=-1), "seed .* at least 0, got -1"),
        (lambda: stratified_interval([1.0, 2.0]), r"scores\[:, None\]"),
        (lambda: stratified_interval([[1.0, 2.0]]), "at least 2 seeds"),
        (lambda: stratified_interval(np.zeros((3, 0))), "one task"),
        (lambda: stratified_interval([[1.0, 2.0], [1.0]]), "equally long"),
        (lambda: stratified_interval(np.zeros((3, 2)), confidence=1.0), "confidence"),
        (lambda: stratified_interval(np.zeros((3, 2)), resamples=0), "resamples"),
        (lambda: stratified_interval(np.zeros((3, 2)), np.mean), "last two axes"),
        (lambda: stratified_interval(np.eye(2), partial(np.mean, axis=-1)), "last two axes"),
    ],
)
def test_impossible_scores_are_refused(call, words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()
