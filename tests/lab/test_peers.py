"""Comparisons with other (here fake) libraries: turns, intervals, equal work, tables."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench_peers import main, require_nothing_lost
from clew.errors import UserError
from clew.lab.bench.timing import estimate
from clew.report.files import write_measured
from comparison import processes
from comparison.compare import Row, agreements, agrees, compare, measure
from comparison.document import (
    PeerComparison,
    as_data,
    document,
    from_data,
    joined,
    markdown,
    not_measured,
    peers_ahead,
)
from comparison.families import FAMILIES
from comparison.processes import WorkerFailed
from fake_peers import FAMILY, PLAN, SIZES, FakeLibrary

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comparison.compare.PAUSE", 0.0)


def compared(facts: dict[str, Any] | None = None) -> PeerComparison:
    library = FakeLibrary(facts or {}, {})
    found, rows, rates = compare((FAMILY,), PLAN, library, lambda: 1e11, lambda what: None)
    machine = {"cores": 2, "processor": "x86"}
    return PeerComparison(machine, PLAN, {"torch": "2"}, rates, found, rows)


def test_subjects_take_turns_and_who_is_ahead_is_told() -> None:
    library = FakeLibrary({}, {})
    rows = {r.subject: r for r in measure(FAMILY, "learn", SIZES, PLAN, library, {"memorax.lstm"})}
    assert set(rows) == {"clew.lstm", "torch.lstm", "flax.lstm"}
    turns = [subject for do, subject in library.asked if do == "time"]
    first, second = turns[:3], turns[3:6]
    assert first == ["clew.lstm", "torch.lstm", "flax.lstm"] and second == first[1:] + first[:1]
    assert len(turns) == 3 * PLAN.rounds
    assert rows["torch.lstm"].times_ours[:3] == (0.5, 0.5, 0.5)
    assert [rows[s].ahead for s in first] == ["", "peer", "clew"]
    assert rows["flax.lstm"].seconds.middle == 0.03 and rows["flax.lstm"].resident_bytes == 2**20


def test_what_cannot_be_measured_is_told() -> None:
    facts = {
        "torch.lstm": {"skipped": "would need 9.0 GiB"},
        "flax.lstm": {"seconds": 99.0},
        "memorax.lstm": WorkerFailed("out of luck"),
    }
    rows = measure(FAMILY, "learn", SIZES, PLAN, FakeLibrary(facts, {}), set())
    notes = [row.note for row in rows]
    assert notes == ["", "would need 9.0 GiB", "one call took 99.0 s", "failed: out of luck"]
    assert all(row.times_ours is None and row.ahead == "" for row in rows)
    assert not_measured(rows)[0] == "LSTM, chunks of 8: torch would need 9.0 GiB"


def test_unequal_work_and_other_outputs_are_not_timed() -> None:
    library = FakeLibrary({"flax.lstm": {"weights": 7}}, {"memorax.lstm": 1.5})
    found = {a.subject: a for a in agreements(FAMILY, PLAN, library)}
    assert [agrees(a) for a in found.values()] == [True, True, False, False]
    assert found["memorax.lstm"].outputs == 0.5 and found["memorax.lstm"].gradients == 0.0
    assert agrees(found["memorax.lstm"]._replace(different="gives something else"))
    assert not agrees(found["torch.lstm"]._replace(gradients=math.nan))
    _, rows, _ = compare((FAMILY,), PLAN, library, lambda: 1.0, lambda what: None)
    assert {row.subject for row in rows} == {"clew.lstm", "torch.lstm"}


def test_a_comparison_is_shown_and_read_again(tmp_path: Path) -> None:
    found = compared()
    assert len(found.rows) == 4 * 3 and found.product_rates == [1e11, 1e11]
    text = markdown(found)
    assert "**0.50 [0.50, 0.50]**" in text and "3.00 [3.00, 3.00]" in text
    assert "| one step | 10.0 [10.0, 10.0] |" in text and "100 GFLOP/s" in text
    said = peers_ahead(found.rows)
    assert said[0] == "LSTM, one step: torch takes 0.50 [0.50, 0.50] of clew's time"
    assert len(said) == 3 and all("torch" in line for line in said)
    write_measured(document(found), tmp_path / "new")
    again = from_data(json.loads((tmp_path / "new" / "peers.json").read_text()))
    second = as_data(again)["rows"][1]
    assert again == found and (second["ahead"], second["product_rate"]) == ("peer", 1e11)
    assert (tmp_path / "new" / "peers.png").stat().st_size > 10_000


def test_several_widths_and_environments_are_points_of_their_own(tmp_path: Path) -> None:
    plan = PLAN._replace(lengths=(4,), widths=(3, 6), envs=(2, 5))
    library = FakeLibrary({}, {})
    found, rows, rates = compare((FAMILY,), plan, library, lambda: 1e11, lambda what: None)
    learned = [row for row in rows if row.mode == "learn" and row.subject == "clew.lstm"]
    points = [(row.width, row.envs) for row in learned]
    assert points == [(3, 2), (3, 5), (6, 2), (6, 5)]
    assert len(rows) == 4 * (len(learned) + 2)  # plus one step at each width
    several = PeerComparison({"cores": 2, "processor": "x86"}, plan, {}, rates, found, rows)
    text = markdown(several)
    assert "Width 3 and 6, 2 and 5 environments learning" in text
    assert "| 4 x 5, width 6 | 10.0 [10.0, 10.0] |" in text and "| one step, width 3 |" in text
    assert "LSTM, chunks of 4 x 2, width 6: torch takes 0.50 [0.50, 0.50] of clew's time" in text
    write_measured(document(several), tmp_path)
    assert from_data(json.loads((tmp_path / "peers.json").read_text())) == several
    assert (tmp_path / "peers.png").stat().st_size > 5_000


def test_a_comparison_is_added_to_an_earlier_one() -> None:
    earlier, library = compared(), FakeLibrary({"torch.lstm": {"skipped": "no room"}}, {})
    plan = PLAN._replace(lengths=(8, 16))
    found, rows, rates = compare((FAMILY,), plan, library, lambda: 2e11, lambda what: None)
    both = joined(earlier, PeerComparison({"cores": 2}, plan, {"flax": "3"}, rates, found, rows))
    assert both.plan.lengths == (4, 8, 16) and both.versions == {"torch": "2", "flax": "3"}
    assert len(both.rows) == 4 * 4 and len(both.agreements) == 4
    of_torch = {r.length: r for r in both.rows if r.subject == "torch.lstm" and r.mode == "learn"}
    assert [of_torch[n].note for n in (4, 8, 16)] == ["", "no room", "no room"]
    assert [of_torch[n].product_rate for n in (4, 8, 16)] == [1e11, 2e11, 2e11]


def test_a_page_of_an_earlier_version_is_measured_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The error gives the command for it; nothing can be added to the old page."""
    data = as_data(compared())
    data["plan"] = {"width": 128}
    (tmp_path / "peers.json").write_text(json.dumps(data))
    require_nothing_lost(tmp_path, list(FAMILIES))
    assert main(["--add", "--output", str(tmp_path)]) == 2
    assert "is of an earlier version" in capsys.readouterr().err


def test_an_undecided_point_says_so() -> None:
    even = estimate([0.98, 0.99, 0.99, 0.99, 1.0, 1.02])
    row = Row("gru", "act", 1, 8, 3, "torch.gru", even, even, None, None, None, "")
    assert row.ahead == "neither" and peers_ahead([row])[0].endswith(
        "(undecided: the interval contains 1)"
    )


def test_the_command_shows_and_writes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    measure_all = "comparison.document.measure_all"
    monkeypatch.setattr(measure_all, lambda plan, repeats, log, families: compared())
    assert main(["--add", "--output", str(tmp_path)]) == 2
    assert "--add and --redraw need an --output with peers.json" in capsys.readouterr().err
    assert main(["--families", "lsmt"]) == 2
    assert "unknown family 'lsmt'; did you mean 'lstm' or 'mlstm'?" in capsys.readouterr().err
    assert main(["--quick", "--output", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "QUICK" in text and "torch / clew" in text and "holds" in text
    assert {p.name for p in tmp_path.iterdir()} == {"peers.json", "peers.md", "peers.png"}
    assert main(["--families", "gru", "--output", str(tmp_path)]) == 2
    assert "holds lstm too, which would be lost; add to it (--add)" in capsys.readouterr().err
    assert main(["--quick", "--add", "--output", str(tmp_path)]) == 0
    assert "torch / clew" in capsys.readouterr().out
    (tmp_path / "peers.md").unlink()
    assert main(["--redraw", "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out and "torch / clew" in (tmp_path / "peers.md").read_text()
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["rounds"] == 6

    def fail(plan: Any, repeats: int, log: Any, families: Any) -> Any:
        raise WorkerFailed("ended with code 1")

    assert main(["--repeats", "0"]) == 2
    assert "repeats must be an integer of at least 1, got 0" in capsys.readouterr().err
    monkeypatch.setattr(measure_all, fail)
    assert main([]) == 1
    assert "no figures: a library's process ended with code 1" in capsys.readouterr().err


def test_without_an_environment_it_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    with pytest.raises(UserError, match="could not be installed into .venv-peers"):
        processes.peers_python()
    installed = tmp_path / processes.FOLDER / ".installed"
    installed.parent.mkdir()
    installed.touch()
    assert processes.peers_python() == tmp_path / ".venv-peers" / "bin" / "python"


def test_every_library_has_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchRL's two forms share a program; each is timed with its best number of threads."""
    monkeypatch.setattr(processes, "peers_python", lambda: Path("python"))
    monkeypatch.setattr(processes, "Worker", lambda command: SimpleNamespace(command=command))
    workers = processes.Workers()
    pad, scan = workers.of("torchrl-pad.gru"), workers.of("torchrl-scan.gru")
    assert pad is workers.of("torchrl-pad.lstm") and pad is not scan


def test_the_lock_of_the_peers_agrees_with_ours() -> None:
    """The compiler is the same on both sides, and the file mentions no machine."""
    versions = [
        dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "tools/peers.lock")
    ]
    ours, theirs = versions
    shared = set(ours) & set(theirs)
    assert {"jax", "jaxlib", "equinox", "numpy", "optax"} <= shared
    assert {name: theirs[name] for name in shared} == {name: ours[name] for name in shared}
    named = {"memax", "memorax", "flax", "sb3-contrib", "torchrl", "mlstm-kernels", "mambapy"}
    assert named | {"fla-core"} <= set(theirs) and "torch" not in theirs
    assert "://" not in (ROOT / "tools/peers.lock").read_text()


@pytest.mark.slow
@pytest.mark.skipif(
    not (ROOT / processes.FOLDER / ".installed").exists(),
    reason="no .venv-peers: make bench-peers",
)
def test_the_libraries_themselves(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/peers/bench_peers.py", "--quick"]
    subprocess.run([*command, "--output", str(tmp_path)], cwd=ROOT, check=True)
    found = from_data(json.loads((tmp_path / "peers.json").read_text()))
    assert all(agrees(a) for a in found.agreements) and not not_measured(found.rows)
    broken = {a.subject for a in found.agreements if a.laws["nan"] is False}
    of_memax = {f"memax.{name}" for name in ("lstm", "gru", "linear_attention", "gated_delta_net")}
    assert broken == of_memax | {"memax.lru", "sb3-contrib.policy"}
    libraries = {"torch", "memorax", "memax", "flax", "sb3-contrib", "torchrl", "mambapy"}
    assert libraries | {"fla-core", "mlstm-kernels"} <= set(found.versions)
