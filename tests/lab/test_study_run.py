"""A study that is killed, in any way at any moment, loses nothing and repeats nothing."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from clew.cli.study_output import show
from clew.errors import UserError
from clew.lab.grid import (
    QuietStudy,
    StudyInterrupted,
    StudyLines,
    read_results,
    run_study,
)
from clew.lab.grid.results import cell_of, failed_cells
from clew.lab.grid.worker import ACTIVE
from clew.run.folder import locked
from clew.run.json_lines import DamagedRowWarning
from small_study import Watch, assert_whole, begun, run_pretended, small_study
from worker_processes import with_paths

CELLS = small_study().cells()


@pytest.fixture
def faults(monkeypatch, tmp_path):
    """Sets the faults of given cells."""

    def set_faults(**settings: str) -> None:
        monkeypatch.setenv("PRETEND_FAULTS", json.dumps(settings["faults"]))

    monkeypatch.setenv("PRETEND_FOLDER", str(tmp_path))
    monkeypatch.delenv("PRETEND_FAULTS", raising=False)
    return set_faults


@pytest.fixture(scope="module")
def once_finished(tmp_path_factory) -> Path:
    """The folder of the whole study."""
    folder = tmp_path_factory.mktemp("finished")
    run_pretended(folder)
    return folder


@pytest.fixture
def finished(once_finished: Path, tmp_path, faults) -> Path:
    """A copy of it."""
    shutil.copytree(once_finished, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_every_cell_once_longest_first_and_nothing_the_second_time(tmp_path, faults) -> None:
    watch = Watch()
    result = run_pretended(tmp_path, workers=1, progress=watch)
    assert_whole(result)
    order = [setting for _, setting, _ in begun(tmp_path)]
    assert order == sorted(order, reverse=True)
    last = watch.standings[-1]
    assert (last.finished, last.total, last.failed) == (27, 27, 0)
    assert last.models == {"none": (9, 9), "gru": (9, 9), "lstm": (9, 9)}
    assert last.seconds_left == 0 and last.rate > 0

    assert_whole(run_pretended(tmp_path, workers=1))
    assert len(begun(tmp_path)) == 27
    # A wider grid in the same folder runs only its new cells.
    wider = run_pretended(tmp_path, workers=1, study=small_study(seeds=(4, 0, 7, 1)))
    assert len(wider.rows) == 36 and len(begun(tmp_path)) == 36
    assert {seed for _, _, seed in begun(tmp_path)[27:]} == {1}


@pytest.mark.slow
def test_kill_twice_and_go_on(tmp_path, faults) -> None:
    seed = random.randrange(10**6)
    print(f"moments of seed {seed}")
    moments = random.Random(seed)
    environment = with_paths(PRETEND_SECONDS="0.15")
    script = str(Path(__file__).parent / "small_study.py")
    for _ in range(2):
        before = set(map(cell_of, read_results(tmp_path)))
        already = len(begun(tmp_path)) if (tmp_path / "begun.jsonl").exists() else 0
        process = subprocess.Popen([sys.executable, script, str(tmp_path)], env=environment)
        while len(read_results(tmp_path)) <= len(before) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.3))
        assert process.poll() is None
        process.kill()
        process.wait()
        again = begun(tmp_path)[already:]
        assert not before & set(again)
        assert len(again) == len(set(again))
    after = set(map(cell_of, read_results(tmp_path)))
    assert 0 < len(after) < 27
    already = len(begun(tmp_path))
    assert_whole(run_pretended(tmp_path))
    assert not after & set(begun(tmp_path)[already:])


@pytest.mark.parametrize("trust", [False, True])
def test_the_code_of_runs_to_start_from_needs_consent(tmp_path, monkeypatch, trust) -> None:
    """Once for each model, before any worker starts."""
    models = {k: replace(m, start_from="other") for k, m in small_study().models.items()}
    asked: list[tuple[str, bool]] = []

    def read(parts, *, trust: bool) -> None:
        asked.append((parts.config.memory, trust))
        if len(asked) == len(models):
            raise UserError("read")

    monkeypatch.setattr("clew.lab.grid.runner.read_shared_start", read)
    with pytest.raises(UserError, match="^read$"):
        run_study(small_study(models=models), tmp_path, progress=Watch(), trust=trust)
    assert sorted(asked) == sorted((name, trust) for name in models)


@pytest.mark.slow
def test_a_line_cut_short_is_mended(finished: Path) -> None:
    file = finished / "results.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    assert len(read_results(finished)) == 26
    result = run_pretended(finished, workers=1)
    assert_whole(result)
    assert len(begun(finished)) == 28
    assert sorted(file.read_bytes().splitlines()) == sorted(whole.splitlines())


@pytest.mark.slow
def test_a_damaged_row_is_named_kept_aside_and_made_again(finished: Path) -> None:
    """A carriage return, one flipped bit, used to cost every row after it."""
    file = finished / "results.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = lines[4].replace(b'": ', b'":\r', 1)
    file.write_bytes(b"".join([*lines[:4], damaged, *lines[5:]]))
    with pytest.warns(DamagedRowWarning, match="results.jsonl: line 5 is damaged, its checksum"):
        assert len(read_results(finished)) == 26
    watch = Watch()
    assert_whole(run_pretended(finished, workers=1, progress=watch))
    assert len(begun(finished)) == 28
    assert [m for m in watch.messages if "line 5 is damaged" in m and "kept in" in m]
    assert (finished / "results.jsonl.damaged").read_bytes() == damaged


@pytest.mark.slow
def test_what_fails_is_told_and_the_others_go_on(tmp_path, faults) -> None:
    faults(
        faults={
            "gru length-1": "raise",
            "gru length-2": "die",
            "lstm length-3": "die once",
            "none length-2": "endless",
        }
    )
    watch = Watch()
    result = run_pretended(tmp_path, progress=watch)
    failed = {str(pack): error for pack, error in result.failures}
    assert failed.keys() == {
        "gru on length-1, seeds 4, 0, 7",
        *(f"gru on length-2, seed {seed}" for seed in (4, 0, 7)),
        "none on length-2, seed 0",
    }
    assert failed["gru on length-1, seeds 4, 0, 7"] == "RuntimeError: nothing works"
    assert "died (killed by signal 9)" in failed["gru on length-2, seed 7"]
    assert failed["none on length-2, seed 0"] == "ValueError: an episode of seed 0 did not end"
    assert len(result.rows) == 27 - 7 == len(read_results(tmp_path))
    assert watch.standings[-1].failed == 7
    again = [m for m in watch.messages if "trying that again" in m]
    assert len(again) == 5 and all("worker" in m and "process" in m for m in again)
    tries = [begun(tmp_path).count(cell) for cell in CELLS]
    assert [t for t, c in zip(tries, CELLS, strict=True) if c[:2] == ("gru", "length-2")] == [4] * 3
    rows = [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()]
    assert len(rows) == 5 and {row["attempts"] for row in rows} == {1, 2}
    # A failed cell is tried again the next time.
    faults(faults={})
    assert_whole(run_pretended(tmp_path))


IN_PROGRESS = {
    "": r"\d in progress have no checkpoint yet and will be begun again",
    "yes": r"\d in progress will go on from the last checkpoint",
}


@pytest.mark.slow
@pytest.mark.parametrize("saved", IN_PROGRESS)
def test_ctrl_c_saves_and_says_how_to_go_on(saved, tmp_path, faults, monkeypatch) -> None:
    monkeypatch.setenv("PRETEND_SAVED", saved)
    monkeypatch.setenv("PRETEND_SECONDS", "0.6")

    def stop(standing) -> None:
        if standing.finished:
            signal.raise_signal(signal.SIGINT)

    told = f"of 27 runs are finished and saved in .*, {IN_PROGRESS[saved]}; go on with: the same"
    with pytest.raises(StudyInterrupted, match=told):
        run_pretended(tmp_path, progress=Watch(stop))
    monkeypatch.setenv("PRETEND_SECONDS", "0")
    assert 0 < len(read_results(tmp_path)) < 27
    assert_whole(run_pretended(tmp_path))


@pytest.mark.slow
def test_other_settings_need_another_folder(finished: Path) -> None:
    with pytest.raises(UserError, match=r"\w+ on length-\d with other settings"):
        run_pretended(finished, study=small_study(episodes=40))
    with locked(finished), pytest.raises(UserError, match="in use by another process"):
        run_pretended(finished)


def test_the_folder_of_another_study_is_left_alone(tmp_path: Path, faults) -> None:
    small = small_study().only(["none"], ["length-1"])
    run_pretended(tmp_path, workers=1, study=small)
    before = (tmp_path / "study.json").read_bytes()
    other = replace(small, name="other")
    named = "is the folder of the study 'small', not of 'other': choose another folder"
    with pytest.raises(UserError, match=named):
        run_pretended(tmp_path, workers=1, study=other)
    with pytest.raises(UserError, match=named):
        show(other, str(tmp_path))
    assert (tmp_path / "study.json").read_bytes() == before
    # A study that was only renamed, and a file that describes none or is damaged.
    for text in ("", "{}", None):
        (tmp_path / "study.json").unlink()
        if text is not None:
            (tmp_path / "study.json").write_text(text)
        run_pretended(tmp_path, workers=1, study=other)
        assert json.loads((tmp_path / "study.json").read_text())["name"] == "other"
    assert len(begun(tmp_path)) == 3


BY_HAND = {
    '{"model": "none", "setting": "length-1", "seed": 0, "mean": 0.5}': "it has no 'digest'",
    '{"model": "none", "setting": "length-1", "mean": 0.5}': "it has no 'seed'",
    '{"model": "none", "setting": "length-1", "seed": "0"}': "its 'seed' is not of type int",
}


@pytest.mark.parametrize("line", BY_HAND)
def test_a_row_by_hand_that_lacks_something_is_named_by_its_line(line: str, tmp_path: Path) -> None:
    other = '{"model": "mine", "setting": "length-1", "seed": 0, "mean": 0.5}'
    (tmp_path / "results.jsonl").write_text(f"{other}\n\n{line}\n")
    with pytest.raises(UserError, match=f"results.jsonl: line 3 is not.*{BY_HAND[line]}; fix"):
        run_study(small_study(), tmp_path, progress=QuietStudy())
    assert not (tmp_path / "study.json").exists()


def test_a_failure_by_hand_that_lacks_something_is_left_out(tmp_path: Path) -> None:
    line = '{"model": "gru", "settings": ["length-1"], "seeds": [0, 4]}'
    (tmp_path / "failures.jsonl").write_text('{"model": "gru"}\n' + line + "\n")
    with pytest.warns(DamagedRowWarning, match="failures.jsonl: line 1 .* it has no 'settings'"):
        assert failed_cells(tmp_path) == [("gru", "length-1", 0), ("gru", "length-1", 4)]


@pytest.mark.slow
def test_workers_that_cannot_start_stop_the_study(tmp_path) -> None:
    from clew.lab.grid import LocalWorkers

    pool = LocalWorkers(tmp_path / "logs", 1, work="no_such_module:work")
    with pytest.raises(UserError, match="worker 0 .*could not start.*no_such_module"):
        run_study(small_study(), tmp_path, workers=pool, progress=QuietStudy())


def test_a_script_without_a_guard_is_told_of_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(ACTIVE, "1")
    with pytest.raises(UserError, match="__main__"):
        run_study(small_study(), tmp_path)


@pytest.mark.slow
def test_lines_tell_cells_rate_and_time_left(tmp_path, faults, capsys) -> None:
    study = replace(small_study(), name="lines")
    run_pretended(tmp_path, workers=1, study=study, progress=StudyLines(every=0.0))
    told = capsys.readouterr().err.splitlines()
    assert "lines, 3 models x 3 settings x 3 seeds = 27 runs, 0 finished" in told[0]
    assert "27/27 runs" in told[-1] and "steps/s" in told[-1] and "0s left" in told[-1]
