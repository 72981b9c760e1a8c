"""The study on POPGym's tasks: its grid, a memory of one's own in it, and its report."""

import json
from pathlib import Path

import pytest

from clew.cli import run
from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.errors import UserError
from clew.lab.grid import check_study, read_results, run_study
from clew.lab.studies.popgym import grid
from clew.lab.studies.popgym.page import page_of
from clew.lab.studies.report.make import make_report
from clew.memory import MEMORIES


@pytest.mark.parametrize("learner", grid.LEARNERS)
def test_agents_differ_in_their_memory_alone(learner: str) -> None:
    study = grid.study("hard", learner)
    assert len(study.settings) == len(POPGYM) == 16
    assert {*study.models} == {*MEMORIES} - {"hybrid"}
    for setting in study.settings.values():
        assert setting.options == {"difficulty": "hard"}
    for name, config in study.models.items():
        assert (config.memory, config.algorithm) == (name, learner)
        assert config.wrappers.previous_action and config.memory_options["hidden_size"] == 64
        assert set(config.memory_options) <= set(grid.SIZES)
    check_study(study.only(["gru", "arelit"], ["battleship"]))


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_floors_are_what_random_actions_earned(difficulty: str) -> None:
    found = json.loads(Path("results/popgym-exactness/exactness.json").read_text())["rows"]
    earned = {row["task"]: row["random_return"] for row in found if row["difficulty"] == difficulty}
    assert grid.random_returns(difficulty) == pytest.approx(earned, abs=6e-4)
    page = page_of(f"popgym/{difficulty}-ppo")
    assert page is not None
    floors = {
        setting.env: setting.floors["random"] for setting in page.publication.settings.values()
    }
    assert floors == grid.random_returns(difficulty)


def test_unknown_choices_are_named() -> None:
    with pytest.raises(UserError, match="did you mean 'medium'"):
        grid.study("medum")
    with pytest.raises(UserError, match="unknown value of learner 'sac'"):
        grid.study(learner="sac")


@pytest.mark.slow
def test_a_memory_of_ones_own_stands_beside_the_others(tmp_path: Path) -> None:
    """It gets the study's agent, and the report names the command."""
    options = grid.PopgymOptions(
        models="none",
        settings="repeat-first",
        seeds=2,
        steps=2048,
        evaluation_episodes=2,
        add_memory=("mine=own_lru:LRU",),
    )
    study = grid.grid(options)
    run_study(study, tmp_path, workers=1)
    rows = read_results(tmp_path)
    assert sorted(row["model"] for row in rows) == ["mine", "mine", "none", "none"]
    report = make_report([tmp_path])
    text = report.markdown.read_text()
    assert "clew study popgym --difficulty easy --learner a2c" in text
    assert "**Normalised scores**" in text and "better than others" in text


def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "popgym", "--list", "--difficulty", "medium", "--seeds", "1"]) == 0
    assert "popgym/medium-a2c" in capsys.readouterr().out
