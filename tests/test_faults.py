"""The campaign of faults counts correctly, and a short one loses nothing."""

import os
import sys
from pathlib import Path

import pytest

from clew.errors import UserError
from clew.run.runner import TrainingInterrupted
from faults import campaign, processes
from faults.bench import NO_EFFECT, SURVIVED, Accepted, Bench, Lost
from faults.campaign import Campaign, Trial, run_campaign, run_trial, write
from faults.endurance import endure
from faults.endured import ANY, HOSTED
from faults.kinds import A_TURN, FILES, KINDS, RUNS
from faults.processes import FAULTS, Trainer, within


def raising(error: BaseException | None = None, says: str = SURVIVED):
    """A kind of fault that raises, or returns a line."""

    def kind(bench: Bench, dice: object) -> str:
        if error is not None:
            raise error
        return says

    return kind


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (raising(), "survived"),
        (raising(says=NO_EFFECT), "no effect"),
        (raising(says="error: no room"), "refused"),
        (raising(Lost("a row")), "lost"),
        (raising(UserError("it should have gone on")), "lost"),
        (raising(Accepted("NaN")), "accepted"),
        (raising(SystemExit(3)), "traceback"),
    ],
)
def test_outcomes(kind, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every outcome is counted in its own column; one without effect in none of them."""
    monkeypatch.setitem(campaign.KINDS, "mine", kind)
    trial = run_trial(Bench(tmp_path), "mine", "0-0")
    assert trial.outcome == outcome
    found = Campaign([trial, trial])
    assert found.count("mine") == found.count("mine", outcome) == 2
    assert len(found.bad) == (2 if outcome in campaign.BAD else 0)
    total = dict(zip(campaign.HEADS, found.counts()[-1], strict=True))
    assert total.pop("injected") == 2 and total.pop("took effect") == 2 * (outcome != NO_EFFECT)
    assert [total[o] for o in campaign.OUTCOMES[:-1]] == [
        2 * (o == outcome) for o in campaign.OUTCOMES[:-1]
    ]
    assert found.table().splitlines()[-1].startswith("| all | 2 |")


def test_ctrl_c_ends_a_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not a fault, and earlier counts stay."""
    said = iter([SURVIVED, SURVIVED])

    def kind(bench: Bench, dice: object) -> str:
        try:
            return next(said)
        except StopIteration:
            raise TrainingInterrupted from None

    monkeypatch.setitem(campaign.KINDS, "mine", kind)
    found = run_campaign(60.0, kinds=["mine"], output=tmp_path)
    assert found.count("mine") == found.count("mine", SURVIVED) == 2
    assert "| mine | 2 |" in (tmp_path / "table.md").read_text()


def test_what_a_campaign_writes(tmp_path: Path) -> None:
    """It writes counts of every kind, examples of lines, and every bad trial in full."""
    trials = [Trial("a", str(n), "refused", f"line {n % 5}", 0.5) for n in range(10)]
    found = Campaign([*trials, Trial("b", "0", "lost", "a row")])
    write(tmp_path / "made", "campaign.json", found.to_json(), "table.md", found.table())
    text = (tmp_path / "made" / "campaign.json").read_text()
    assert '"refused": 10' in text and "line 2" in text and "line 3" not in text
    assert '"a row"' in text
    assert "| b | 1 | 1 | 0 | 0 | 1 | 0 | 0 |" in (tmp_path / "made" / "table.md").read_text()


def test_a_turn_has_every_kind() -> None:
    """Quick ones occur several times, each with its own number."""
    turns = [list(campaign._turn(list(KINDS), turn)) for turn in (0, 1)]
    assert len(set(turns[0] + turns[1])) == 2 * sum(A_TURN.values())
    assert {kind for kind, _ in turns[0]} == set(KINDS)


def test_an_environments_traceback_is_not_ours() -> None:
    """It is part of the message about the environment."""
    said = "step, 2 steps into its episode: E\nTraceback (most\nE: 3\n; reopened (1 of"
    assert "Traceback" not in FAULTS.sub("", said)
    assert "Traceback" in FAULTS.sub("", said + "\nTraceback (most recent call last)")
    shown = f"{said} of 10)\nTraceback (most recent call last):\n  File x\n    f()\nSystemExit: 0\n"
    assert FAULTS.sub("", f"{shown}16/192 steps\n").endswith("16/192 steps\n")
    assert "Traceback" not in FAULTS.sub("", shown)


def test_a_process_that_hangs_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as lost, also if the campaign was stopped for a while."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -c "import time; time.sleep(99)"\n')
    python.chmod(0o755)
    monkeypatch.setattr(processes, "ENDING", 1)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(Lost, match=r'(?s)did not end: .*File "<string>", line 1'):
        Trainer(tmp_path, tmp_path / "temporary").ended((0,))


def test_waiting_counts_looks() -> None:
    """It does not count the clock, which continues while a process is stopped."""
    looks: list[bool] = []
    assert not within(0.1, lambda: bool(looks.append(True)))
    assert len(looks) == 6
    assert within(0.0, lambda: True)


@pytest.mark.slow
def test_a_short_campaign_loses_nothing() -> None:
    """For the kinds that need no other process; each has an effect."""
    quick = [name for name, kind in KINDS.items() if kind in (*RUNS, *FILES)]
    found = run_campaign(600.0, kinds=quick, trials=sum(A_TURN[name] for name in quick))
    assert not found.bad
    assert all(found.count(name) > found.count(name, NO_EFFECT) for name in quick)


@pytest.mark.slow
def test_every_kind_of_processes_loses_nothing() -> None:
    """One fault of each."""
    others = [name for name, kind in KINDS.items() if kind not in (*RUNS, *FILES)]
    found = run_campaign(600.0, kinds=others, trials=len(others))
    assert len(found.trials) == len(others) and not found.bad
    assert os.getcwd() != "/"


@pytest.mark.slow
def test_a_disturbed_training_is_an_undisturbed_one() -> None:
    """Half a minute of it; every fault has its own name."""
    made = endure(0.5, every=5.0)
    assert len({fault.__name__ for fault in HOSTED}) == len(ANY) + 2
    for run in made:
        assert not run.campaign.bad and run.updates
        assert run.campaign.count("the whole", SURVIVED) == 1
