"""The example programs run and, given time, learn what they promise."""

import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import clew
from clew.agents.distributions import make_distribution
from clew.lab.grid import Evaluation

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_gymnasium_loop_runs(ordinary_promotion: None) -> None:
    """Twenty updates are enough to see episodes end and the loop continue."""
    shares = runpy.run_path(str(EXAMPLES / "gymnasium_loop.py"))["main"](updates=20)
    assert len(shares) == 1 and 0 < shares[0] < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "options"),
    [("gru", {}), ("gtrxl", {"hidden_size": 16, "num_layers": 1, "window": 8})],
)
def test_jax_loop_acts_as_it_learns(
    memory: str, options: dict[str, int], ordinary_promotion: None
) -> None:
    """It asserts this for every rollout; GTrXL caches values that an update changes."""
    main = runpy.run_path(str(EXAMPLES / "jax_loop.py"))["main"]
    returns = main(memory, iterations=3, **options)
    assert len(returns) == 3 and all(-1 <= earned < 0 for earned in returns)


@pytest.mark.slow
def test_jax_loop_learns(ordinary_promotion: None) -> None:
    """It earns far more than -0.5, the return of a guess."""
    returns = runpy.run_path(str(EXAMPLES / "jax_loop.py"))["main"]()
    assert returns[0] < -0.3 and np.mean(returns[-10:]) > 0.9


@pytest.mark.slow
def test_own_study_runs(ordinary_promotion: None, tmp_path: Path) -> None:
    """With a budget of a second, in a worker process, and nothing to do the second time."""
    example = runpy.run_path(str(EXAMPLES / "own_study.py"))
    study = example["STUDY"].only(models=["1 layers"], settings=["corridor 5"])
    study = replace(study, seeds=(3, 1), steps=2048, evaluation=Evaluation(episodes=8))
    result = example["main"](study, tmp_path, workers=1)
    assert [row["seed"] for row in result.rows] == [3, 1] and not result.failures
    assert all(0 <= row["mean"] <= 1 and row["episodes"] == 8 for row in result.rows)
    assert example["main"](study, tmp_path).rows == result.rows


def test_an_export_plays_cartpole(ordinary_promotion: None, tmp_path: Path) -> None:
    """Actions are the same with its own runner, with clew and, if there is a compiler, in C++."""
    memory = clew.make_memory("lstm", input_size=4, key=jax.random.key(0), hidden_size=8)
    space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    actions = gymnasium.spaces.Discrete(2)
    agent = clew.Agent(memory, make_distribution(actions), key=jax.random.key(1))
    export = clew.export_agent(agent, space, actions, tmp_path / "pole").folder
    example = runpy.run_path(str(EXAMPLES / "play_export.py"))
    ways = ["numpy", "clew", *(["cpp"] if shutil.which("c++") else [])]
    found = [example["play"](example["WAYS"][way](export), episodes=3) for way in ways]
    assert len({(str(one["returns"]), one["actions_sha256"]) for one in found}) == 1
    assert found[0]["steps"] > 20


@pytest.mark.slow
def test_gymnasium_loop_learns(ordinary_promotion: None) -> None:
    """Success exceeds the maximum of agents without memory."""
    shares = runpy.run_path(str(EXAMPLES / "gymnasium_loop.py"))["main"](updates=200)
    assert max(shares) > 0.9
