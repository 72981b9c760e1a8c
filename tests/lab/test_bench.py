"""The bench measures the right quantities, and refuses a memory that breaks a law."""

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import clew.lab.bench.machine
import clew.lab.bench.speed
from clew.cli import run
from clew.errors import UserError
from clew.lab.bench.machine import matrix_product_rate, rate_of
from clew.lab.bench.speed import SpeedPlan, case_of, cases, measure
from clew.lab.bench.timing import Estimate
from clew.lab.costs import multiply_adds
from clew.memory import MEMORIES, make_memory
from clew.memory.laws import LawBroken
from clew.run.config import TrainConfig
from clew.run.machine import planned_bytes

TINY = SpeedPlan(num_envs=2, length=3, repeats=1, law_lengths=(1,))


def test_figures_are_consistent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clew.lab.bench.speed, "matrix_product_rate", lambda repeats: 1e9)
    figures = measure("none", "none", {"hidden_size": 8, "num_layers": 1}, TINY)
    memory = 16 * 8
    heads = 2 * 8 * 128 + 128 * (4 + 1)
    assert figures.multiply_adds == memory + heads
    assert figures.parameters == memory + 8 + heads + 2 * 128 + 4 + 1
    assert figures.product_rate == 1e9
    assert figures.acting_fraction == 2 * figures.multiply_adds * figures.acting.middle / 1e9
    assert figures.learning_fraction == 6 * figures.multiply_adds * figures.learning.middle / 1e9
    assert figures.training_fraction == 8 * figures.multiply_adds * figures.training.middle / 1e9
    for rate in (figures.acting, figures.learning, figures.training):
        assert 0 < rate.low <= rate.middle <= rate.high
    assert figures.peak_bytes > 3 * 4 * figures.parameters  # parameters and Adam's two means
    assert figures.compile_seconds > 0
    assert 0 <= figures.largest_deviation < 1e-4


def test_all_memories_have_a_case_of_the_right_size() -> None:
    known = cases()
    measured = (TrainConfig(memory=m, memory_options=o).identity() for m, o in known.values())
    assert {settings["memory"] for settings in measured} == set(MEMORIES)
    assert {"lstm", "gru", "gtrxl-128", "gtrxl-256", "arelit"} <= set(known)
    assert known["lstm"][1]["hidden_size"] == 600 and known["gru"][1]["hidden_size"] == 680
    assert known["arelit"][1]["eta"] == 4


def test_a_broken_law_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise LawBroken("LSTM breaks law 'reset'")

    monkeypatch.setattr(clew.lab.bench.speed, "check", refuse)
    monkeypatch.setattr(
        clew.lab.bench.speed, "cases", lambda: {"small": ("lstm", {"hidden_size": 4})}
    )
    assert run(["bench", "--quick", "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == "" and "no figures: small breaks a law" in said.err


@pytest.mark.slow
def test_a_memory_of_ones_own_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(clew.lab.bench.speed, "matrix_product_rate", lambda repeats: 1e9)
    monkeypatch.setattr(clew.lab.bench.speed, "QUICK", TINY)
    monkeypatch.setattr(clew.lab.bench.speed, "SIZES", {"hidden_size": 6, "window": 3})
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # a user's JAX
        assert run(["bench", "--quick", "--json", "--memories", "own_lru:LRU"]) == 0
    (figures,) = json.loads(capsys.readouterr().out)["figures"]
    assert figures["memory"] == "own_lru:LRU" and figures["options"] == {"hidden_size": 6}
    assert figures["parameters"] > 0 and figures["training"]["median"] > 0


def test_a_name_to_measure_that_is_none_is_said() -> None:
    with pytest.raises(UserError, match="'gro'.*gru"):
        case_of("gro", cases())
    with pytest.raises(UserError, match="own_lru"):
        case_of("own_lru:Absent", cases())


def test_the_command_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    one = Estimate(1000.0, 900.0, 1200.0, 0.9)
    figures = clew.lab.bench.speed.Figures(
        "small", "lstm", {}, 1, 10, 9, one, one, one, 2**20, 1.5, 2e11, 0.1, 0.2, 0.3, 1e-7
    )
    monkeypatch.setattr(clew.lab.bench.speed, "measure", lambda *args: figures)
    monkeypatch.setattr(clew.lab.bench.speed, "cases", lambda: {"small": ("lstm", {})})
    assert run(["bench"]) == 0
    text = capsys.readouterr().out
    assert "1,000 ±20%" in text and "10% / 20% / 30%" in text and "200 GFLOP/s" in text
    assert run(["bench", "--json", "--memories", "small"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["figures"][0]["training"]["median"] == 1000.0
    assert found["plan"]["length"] == 256 and found["machine"]["product_rate"] == 2e11


def test_rates_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rate_of(lambda: jnp.zeros(3), 5.0, repeats=4).low > 0
    monkeypatch.setattr(clew.lab.bench.machine, "PRODUCT_SIZE", 64)
    assert math.isfinite(matrix_product_rate(1))
    x = jnp.ones((100, 100))
    compiled = jax.jit(lambda x: x + 1).lower(x).compile()
    assert planned_bytes(compiled) == 2 * x.nbytes


def test_what_a_fraction_counts_is_what_the_jaxpr_has() -> None:
    lstm = make_memory("lstm", input_size=16, key=jax.random.key(0), hidden_size=8)
    assert multiply_adds(lstm).products == 4 * (16 * 8 + 8 * 8)
