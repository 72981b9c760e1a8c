"""`clew inspect` from a run's folder to files."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clew.cli import run
from clew.inspect import memory_length
from clew.inspect.page import headline
from clew.interact.task import PlayConfig
from clew.run.build import make_task
from clew.run.evaluate import load
from clew.run.folder import read_config
from small_run import TINY_GRU, train_tiny

QUICK = "--actions sampled --episodes 30 --influence-episodes 3"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a GRU that has hardly learned anything."""
    return train_tiny(tmp_path_factory.mktemp("runs"), TINY_GRU)


def test_inspecting_a_run_writes_all_it_found(tiny: Path, capsys: pytest.CaptureFixture) -> None:
    """The printed JSON equals the file, and CSV, pictures and page exist."""
    capsys.readouterr()
    assert run(["inspect", str(tiny), *QUICK.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tiny / "inspect/inspection.json").read_text())
    assert found["memory"] == "gru" and found["task"].startswith("tmaze (corridor_length 3")
    assert found["probes"][0]["label"] == "cue" and found["state_size"] == 4
    assert found["probes"][0]["accuracy"][0]["low"] > 0.7
    assert set(found["maps"]) == {"layer 1: z", "layer 1: r"}
    gradient = np.array(found["gradient"]["policy"])
    decisions = np.array(found["decisions"])
    assert 0 < found["first_share"]["gradient"] < 1
    assert gradient.shape == (3, max(found["lengths"])) and np.all(gradient[:, 0] > 0)
    assert np.array_equal(decisions, np.array(found["lengths"]) - 1)
    for way in ("gradient", "occlusion"):
        last = np.array(found[f"{way}_map"]["policy"])
        later = np.array(found["map_steps"])[:, None] < np.arange(last.shape[1])[None, :]
        assert np.all(last[later] == 0)
    with open(tiny / "inspect/influence.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * sum(found["lengths"])
    assert float(rows[0]["policy"]) == pytest.approx(gradient[0, 0], rel=1e-5)
    page = (tiny / "inspect/inspection.html").read_text()
    assert "<svg" in page and "http" not in page.replace("http://www.w3.org", "")
    for name in ("inspection.png", "inspection.svg", "maps.csv", "probe.csv", "memory_length.csv"):
        assert (tiny / "inspect" / name).stat().st_size > 50


def test_recorded_episodes_are_whole_and_named(tiny: Path) -> None:
    """The cue's label is in the first observation; the last step ends the episode."""
    task = make_task(read_config(tiny))
    found = task.episodes(load(tiny), PlayConfig(30, greedy=False, max_steps=7))
    assert found.number == 30 and found.left_out == 0
    first = found.observations[:, 0]
    assert np.array_equal(found.labels["cue"], (first[:, 0] == 1).astype(int))
    assert np.array_equal(found.lengths, found.metrics["length"])
    assert np.all(found.observations[np.arange(7)[None] >= found.lengths[:, None]] == 0)
    few = task.episodes(load(tiny), PlayConfig(30, greedy=False, max_steps=6))
    assert few.number + few.left_out == 30 and few.longest <= 6


def test_the_headline_says_why_categories_have_no_gradient() -> None:
    lengths = {
        (way, "policy"): memory_length(np.array([influence]))
        for way, influence in (("gradient", [0.0, 0.0]), ("occlusion", [0.0, 1.0]))
    }
    found: Any = SimpleNamespace(
        memory_lengths=lengths, probes=[], metrics={}, first_share=lambda way: 0.25
    )
    first, second = (" ".join(words) for words in headline(found))
    assert first == "0 observations move the decision by gradient, of which categories have none"
    assert second.startswith("1 (1 to 1) steps hold 90% of the influence by occlusion")
