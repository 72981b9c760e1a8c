"""A sweep: A2C's rates and costs as arguments of one program."""

from dataclasses import replace

import numpy as np
import pytest

from clew.lab.grid import Pack, Setting, make_packs
from clew.lab.grid.jobs import make_job, run_job
from small_cells import small_cells
from small_study import Killed, stop_at

PAIRS = ((1e-2, 1e-3), (1e-4, 1e-3), (1e-2, 1e-1))


def small_sweep(pairs=PAIRS, **changes):
    """A GRU on two corridors with each of some pairs of learning rate and entropy cost."""
    settings = {
        f"corridor-{n} rate-{rate:g} entropy-{cost:g}": Setting(
            "tmaze",
            {"corridor_length": n, "time_limit": 40},
            learning={"learning_rate": rate, "entropy_cost": cost},
        )
        for n in (3, 4)
        for rate, cost in pairs
    }
    base = small_cells()
    values = {"models": {"gru": base.models["gru"]}, "settings": settings, "resumable": False}
    return replace(base, steps=320, seeds=(3, 5), **values, **changes)


def test_each_task_and_seed_is_a_program_of_all_pairs() -> None:
    study = small_sweep()
    packs = make_packs(study)
    assert [pack.seeds for pack in packs] == [(3,), (3,), (5,), (5,)]
    assert [len(pack.settings) for pack in packs] == [3] * 4
    assert all(len({name.split()[0] for name in pack.settings}) == 1 for pack in packs)
    left = make_packs(study, packs[0].cells + packs[1].cells[:2])
    assert [len(pack.settings) for pack in left] == [1, 3, 3]
    assert len(make_packs(replace(study, resumable=True))) == 12


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows of one pack, and the pack."""
    study = small_sweep()
    pack = make_packs(study)[0]
    job = make_job(study, pack, tmp_path_factory.mktemp("sweep"))
    return study, pack, run_job(job)


def curve(row) -> np.ndarray:
    """Success of a row's bins, NaN where no episode ended."""
    return np.array(row["curve"]["success"], np.float64)


def test_a_lane_is_what_training_its_pair_alone_gives(rows, tmp_path) -> None:
    study, pack, together = rows
    assert [row["setting"] for row in together] == list(pack.settings)
    alone = Pack("gru", pack.settings[2:], pack.seeds)
    (single,) = run_job(make_job(study, alone, tmp_path))
    np.testing.assert_array_equal(single["curve"]["episodes"], together[2]["curve"]["episodes"])
    np.testing.assert_allclose(curve(single), curve(together[2]), rtol=1e-5)
    # All lanes start alike, and diverge with their settings.
    first = np.stack([curve(row) for row in together])
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[0], first[2])
    assert len({row["digest"] for row in together}) == 3


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_ends_as_if_nothing_had_been(rows, tmp_path) -> None:
    study, pack, together = rows
    job = make_job(study, pack, tmp_path)
    with pytest.raises(Killed):
        run_job(job, stop_at(0.6))
    shares: list[float] = []
    again = run_job(job, shares.append)
    assert shares[0] > 0.4
    for row, other in zip(again, together, strict=True):
        assert (row["curve"], row["mean"]) == (other["curve"], other["mean"])
    assert not list(tmp_path.glob("packs/*"))
