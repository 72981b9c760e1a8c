"""The campaign of faults: what it counts, and that nothing is lost in a short one."""

import os
from pathlib import Path

import pytest

from clew.errors import UserError
from clew.lab.faults import campaign
from clew.lab.faults.bench import Accepted, Bench, Lost
from clew.lab.faults.campaign import Campaign, run_campaign, run_trial
from clew.lab.faults.kinds import KINDS

QUICK = ("damaged checkpoint", "damaged metrics", "damaged config", "removed folder", "in use")


def raising(error: BaseException | None = None, says: str = "survived"):
    """A kind that raises, or says something."""

    def kind(bench: Bench, dice: object) -> str:
        if error is not None:
            raise error
        return says

    return kind


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (raising(), "survived"),
        (raising(says="error: no room"), "refused"),
        (raising(Lost("a row")), "lost"),
        (raising(UserError("it should have gone on")), "lost"),
        (raising(Accepted("NaN")), "accepted"),
        (raising(SystemExit(3)), "traceback"),
    ],
)
def test_outcomes(kind, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one is counted in its own column."""
    monkeypatch.setitem(campaign.KINDS, "mine", kind)
    trial = run_trial(Bench(tmp_path), "mine", "0-0")
    assert trial.outcome == outcome
    found = Campaign([trial, trial])
    assert found.count("mine") == found.count("mine", outcome) == 2
    assert len(found.bad) == (2 if outcome in campaign.BAD else 0)
    assert found.table().splitlines()[-1].startswith("| all | 2 |")


@pytest.mark.slow
def test_a_short_campaign_loses_nothing() -> None:
    """Of the kinds that need no other process."""
    found = run_campaign(60.0, kinds=QUICK, trials=len(QUICK))
    assert len(found.trials) == len(QUICK) and not found.bad


@pytest.mark.slow
def test_every_kind_loses_nothing() -> None:
    """Two of each."""
    found = run_campaign(600.0, trials=2 * len(KINDS))
    assert len(found.trials) == 2 * len(KINDS) and not found.bad
    assert os.getcwd() != "/"
