"""Settings that share a program give the same results as each of them alone."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from clew.agents.network import NetworkConfig
from clew.lab.grid import Pack, Setting, Study, make_packs
from clew.lab.grid.jobs import lanes_of, make_job, run_job
from clew.lab.grid.study import registered
from clew.lab.studies.makkink import grid as makkink
from clew.run.build import make_parts
from clew.run.lanes import SIZES, init_lanes, lanes_config
from clew.run.updates import init_run
from small_study import small_study

MIX = "clew.lab.studies.makkink.mixed_recall:MixedRecall"
SEEDS = (4, 0)
REZERO = {"hidden_size": 4, "num_layers": 1, "num_heads": 1, "head_size": 4, "window": 2}
"""Small, and with a parameter that is a single number."""


def mixed_study(**changes) -> Study:
    """Two sizes of the memory chain that differ in length and in bits."""
    small = small_study(episodes=60, curve_bins=3, seeds=SEEDS)
    mlp = NetworkConfig(encoder="mlp", encoder_size=4, encoder_layers=1, head_size=4)
    settings = {
        f"{n} {k}": Setting(
            "memory_chain",
            {"memory_length": n, "num_bits": k, "stream_seed": 0},
            decisions=n + 1,
            mix=MIX,
            together="all",
        )
        for n, k in ((2, 3), (4, 1))
    }
    gru = replace(small.models["gru"], network=mlp)
    rezero = replace(gru, memory="rezero", memory_options=REZERO)
    models = {
        "gru": gru,
        "rezero": rezero,
        "none": small.models["none"],
        "bare": small.models["gru"],
    }
    return replace(small, **{"models": models, "settings": settings, **changes})


def test_a_program_takes_what_it_can() -> None:
    study = mixed_study()
    both = ("2 3", "4 1")
    assert set(make_packs(study)) == {
        Pack("gru", both, SEEDS),
        Pack("rezero", both, SEEDS),
        Pack("none", both, SEEDS),
        # Its first product also has rows for the state.
        Pack("bare", ("2 3",), SEEDS),
        Pack("bare", ("4 1",), SEEDS),
    }
    assert str(Pack("gru", both, SEEDS)) == "gru on 2 3 to 4 1, seeds 4, 0"
    # If one setting lacks a seed, the two are not the same work.
    finished = {Pack("gru", both, SEEDS).cells[0]}
    left = make_packs(study.only(["gru"]), finished)
    assert set(left) == {Pack("gru", ("2 3",), (0,)), Pack("gru", ("4 1",), SEEDS)}
    # A budget in steps is not one in episodes: the lanes of a program would not end together.
    by_steps = make_packs(replace(study, episodes=None, steps=100).only(["gru"]))
    assert [len(pack.settings) for pack in by_steps] == [1, 1]


def test_the_published_study_needs_few_programs() -> None:
    packs = make_packs(makkink.study())
    assert sum(len(pack.cells) for pack in packs) == 1113
    assert len(packs) == 7 * (8 + 1 + 4)
    assert {cell for pack in packs for cell in pack.cells} == set(makkink.study().cells())


def test_windows_are_no_wider_than_episodes() -> None:
    study = mixed_study(fit_windows=True)
    wide = replace(study.models["rezero"], memory_options=REZERO | {"window": 100})
    study = replace(study, models={"rezero": wide, "gru": study.models["gru"]})
    windows = [study.config("rezero", s).memory_options["window"] for s in study.settings]
    assert windows == [2, 4]
    assert study.config("gru", "2 3").memory_options == study.models["gru"].memory_options
    job = make_job(study, Pack("rezero", ("2 3", "4 1"), SEEDS), None)
    config = lanes_config(lanes_of(job))
    assert config.memory_options["window"] == 4


@pytest.mark.parametrize("model", ["rezero", "none"])
def test_lanes_begin_as_alone(model: str) -> None:
    study = mixed_study()
    pack = Pack(model, ("2 3", "4 1"), SEEDS)
    with registered({}, {SIZES: MIX}):
        lanes = lanes_of(make_job(study, pack, None))
        together = init_lanes(make_parts(lanes_config(lanes)), lanes).seed
    names = [f"{cell.setting}, seed {cell.seed}" for cell in pack.cells]
    assert [lane.name for lane in lanes] == names
    for index, lane in enumerate(lanes):
        alone = init_run(make_parts(lane.config), [lane.config.seed]).seed
        for a, b in zip(jax.tree.leaves(together.agent), jax.tree.leaves(alone.agent), strict=True):
            there = a[index][tuple(slice(n) for n in b.shape)]
            np.testing.assert_allclose(there, b, rtol=1e-6, atol=1e-6)
            assert np.abs(a[index]).sum() == pytest.approx(np.abs(b).sum())
        seen = alone.actor.timestep.observation
        shown = together.actor.timestep.observation[index][:, : seen.shape[1]]
        assert shown.tolist() == seen.tolist()
        assert (jax.random.key_data(together.key[index]) == jax.random.key_data(alone.key)).all()


@pytest.mark.slow
def test_a_mixed_program_is_its_cells_alone() -> None:
    study = mixed_study()
    pack = Pack("gru", ("2 3", "4 1"), SEEDS)
    rows = run_job(make_job(study, pack, None))
    assert [(row["setting"], row["seed"]) for row in rows] == [cell[1:] for cell in pack.cells]
    assert rows[0]["pack"]["settings"] == ["2 3", "4 1"]
    for at, setting in ((0, "2 3"), (2, "4 1")):
        alone = run_job(make_job(study, Pack("gru", (setting,), SEEDS), None))
        for row, expected in zip(rows[at : at + 2], alone, strict=True):
            assert json.loads(json.dumps(row)) == row
            # The same draws from the same probabilities: only rounding could change one of them.
            assert row["curve"]["return"] == pytest.approx(expected["curve"]["return"], abs=0.11)
            assert row["curve"]["steps"] == expected["curve"]["steps"]
            assert row["mean"] == pytest.approx(expected["mean"], abs=0.21)
            for name in ("digest", "parameters", "steps", "episodes", "setting", "model"):
                assert row[name] == expected[name]
