"""Which memory for what: names and pages that there are, and what the command prints."""

import json
import shlex
from pathlib import Path

import pytest

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.cli import run
from clew.cli.advise import look_at
from clew.envs import ENVS
from clew.lab import advice

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_of_the_advice() -> None:
    """Write it anew with `advice.page()` when the advice has changed."""
    assert (ROOT / "docs" / "which-memory.md").read_text(encoding="utf-8") == advice.page()


def test_every_task_has_its_needs() -> None:
    """Those of the library; others are known by how their names begin."""
    unknown = [name for name in ENVS if not advice.needs_of(name)]
    assert unknown == []
    for need in advice.needs():
        assert all(name in ENVS or ":" in name for name in need.tasks), need.title
        assert not need.evidence or (ROOT / "results" / need.evidence / "README.md").exists()
        assert ("not known" in need.advice) == (need.evidence in ("", "memory-maze-9x9"))


@pytest.mark.parametrize("need", advice.needs(), ids=lambda need: need.title)
def test_commands_are_those_that_there_are(need: advice.Need) -> None:
    words = shlex.split(need.command)
    assert words[0] == "clew"
    if words[1] == "train":
        assert words[words.index("--env") + 1] in need.tasks


def test_what_is_known_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", "--env", "memory_chain", "--env-options", "memory_length=3"]) == 0
    said = capsys.readouterr().out
    assert "4 steps, of 16 by an untrained agent" in said and "take:    gru" in said
    assert run(["advise", "--env", "gymnasium:Acrobot-v1"]) == 0
    said = capsys.readouterr().out
    assert "Not known of this task. Which of these is yours?" in said
    assert "clew compare --memories gru arelit none --env gymnasium:Acrobot-v1" in said
    assert run(["advise", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["needs"]) == len(advice.needs())


def test_an_own_module_is_not_taken_for_a_task_of_its_first_letters() -> None:
    """Only names of bridges are beginnings."""
    assert advice.needs_of("tmaze") and not advice.needs_of("tmaze_thermo:Room")
    assert advice.needs_of("xminigrid:MiniGrid-MemoryS8")


def test_a_task_that_raises_is_not_taken_for_an_endless_one() -> None:
    with pytest.raises(EnvironmentFault):
        look_at("labelled:Troubled", {"trouble": "raise"})
