"""`clew study`: what it lists, runs and refuses."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from clew.cli import run
from clew.cli.study_output import StudyTable, report
from clew.errors import UserError
from clew.lab.grid import Pack, Standing, StudyResult, read_results
from clew.lab.grid.progress import format_standing
from clew.lab.grid.runner import Failure
from clew.lab.studies.published import first_seeds
from pixel_maze import TASK
from requested import requested

TINY = "makkink --part length --settings length-1 --seeds 1 --episodes 8 --evaluation-episodes 4"
MINE = """
from clew.memory.none import NoMemory

def Mine(input_size, *, key):
    return NoMemory(input_size, key=key, hidden_size=64, num_layers=1)

nothing = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `mine` in the current folder, where the command looks for it.

    Other tests have a module of that name too; they do not interfere.
    """
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("mine", None)
    yield tmp_path
    sys.modules.pop("mine", None)


@pytest.mark.slow
def test_a_memory_of_ones_own_runs_in_the_grid(own_module: Path, capsys) -> None:
    args = f"study {TINY} --models none --add-memory mine:Mine --workers 1 --run-dir here"
    assert run(args.split()) == 0
    told = capsys.readouterr()
    assert "mine: mean return" in told.out and "published 1.000" in told.out
    assert "2/2 runs" in told.err
    rows = {row["model"]: row for row in read_results("here")}
    assert rows.keys() == {"none", "mine"}
    assert all((row["episodes"], row["seed"]) == (4, 4) for row in rows.values())
    study = json.loads(Path("here/study.json").read_text())
    assert study["memories"] == {"mine": "mine:Mine"}
    assert study["models"]["mine"]["network"]["encoder"] == "mlp"

    assert run([*args.split(), "--list"]) == 0
    told = capsys.readouterr().out
    assert "2 runs, 2 finished in here, 0 programs to go" in told
    before = (own_module / "here/results.jsonl").read_bytes()
    assert run(args.split()) == 0
    assert (own_module / "here/results.jsonl").read_bytes() == before


def test_list_counts_and_runs_nothing(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "none"
    assert run(["study", "makkink", "--list", "--run-dir", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "1,113 runs, 0 finished" in told and "91 programs" in told
    assert "distributed-30-25" in told and "seeds: 4, 5, 10" in told
    assert not folder.exists()


MISTAKES = {
    "": "which study? clew study NAME; known: makkink, tmaze, memory-maze, popgym, pramanik",
    "makink": "unknown study 'makink'; did you mean 'makkink'",
    "pramanik": "which part of pramanik? --part PART; known: tmaze, memory-maze",
    "makkink --part sizes": "unknown value of part 'sizes'; did you mean 'size'?",
    "makkink --edition publish": "did you mean 'published'?",
    "makkink --models gtrlx,lstm": "unknown model of makkink/published 'gtrlx'; did you mean",
    "makkink --settings length-11": "unknown setting of makkink/published 'length-11'",
    "makkink --seeds -1": "seeds must be an integer of at least 0, got -1",
    "makkink --workers -1": "workers must be an integer of at least 0",
    "makkink --workers x": "--workers must be an integer, got 'x'",
    "makkink --trust": "--trust is for models that start from a run, and none does",
    "makkink --worker 1": "unknown option '--worker'; did you mean --workers",
    "makkink --add-memory mine": "expected package.module:name, got 'mine'",
    "makkink --add-memory nosuch:Mine": "cannot import 'nosuch' of 'nosuch:Mine'",
    "makkink --add-memory mine:Min": "unknown name in mine 'Min'; did you mean 'Mine'?",
    "makkink --add-memory mine:nothing": "mine:nothing is 3, of int; expected a class",
    "makkink --add-memory lstm=mine:Mine": "has a model 'lstm'; give yours another name",
    "makkink --add-memory arelit=mine:Mine": "a memory 'arelit'; give yours another name",
    "makkink --add-memory mine:Mine width=3": "mine on length-1: unknown option of mine 'width'",
    "makkink --add-memory mine:Mine width=3 width=4": "add-memory mine:Mine: width is given twice",
    "makkink --add-memory width=3": "expected package.module:name, got '3'",
    "makkink --add-memory mine:NoMemory": "nomemory on length-1: skip needs a memory",
    "makkink --corridors 120": "--corridors is for tmaze, not for makkink",
    "makkink --sweep": "--sweep is for tmaze, memory-maze, not for makkink",
    "makkink --steps 5 --episodes 5": "--steps and --episodes exclude each other",
    "pramanik --part tmaz": "did you mean 'tmaze'?",
    "pramanik --part tmaze --corridors 120,x": "integers separated by commas, got '120,x'",
    "pramanik --part tmaze --corridors 1": "corridor must be an integer of at least 2, got 1",
    "pramanik --part tmaze --edition publishd": "did you mean 'published'?",
    "pramanik --part tmaze --ray auto": "--ray is for short trainings",
    "pramanik --part tmaze --episodes 10": "a resumable study needs its budget as steps",
    "pramanik --part memory-maze --mazes 10": "side 9, 11, 13, 15, got 10",
    "pramanik --part memory-maze --mazes 9x9": "integers separated by commas, got '9x9'",
    "pramanik --part memory-maze --mazes 9 --env a:b": "--mazes and --env exclude each other",
    "pramanik --part memory-maze --corridors 120": "--corridors is for tmaze, not for memory-maze",
    "pramanik --part tmaze --rates-from here": "--rates-from is for memory-maze, not for tmaze",
    "pramanik --part memory-maze --rates-from h --sweep": "exclude each other",
    "pramanik --part memory-maze --rates-from nowhere": "unknown study's folder 'nowhere'",
    "pramanik --part memory-maze --runner asinc": "did you mean 'async'",
    "pramanik --part memory-maze --actors -1": "actors must be an integer of at least 0, got -1",
    "pramanik --part memory-maze --models lsmt": "did you mean 'lstm'",
    "pramanik --part memory-maze --episodes 5": "a resumable study needs its budget as steps",
    "pramanik --part memory-maze --ray auto": "those of memory-maze are resumed from this disk",
    "pramanik --part memory-maze --env pixel_maze:Maze --models lstm": "PixelMaze",
    f"pramanik --part memory-maze --env {TASK} --actors 5": "got 5 actors for 64 environments",
}


@pytest.mark.parametrize("args", MISTAKES)
def test_mistakes_are_one_line(args: str, own_module: Path, capsys) -> None:
    assert run(["study", *args.split(), "--list"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith("error: ") and MISTAKES[args] in line


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert run(["study", "makkink", "--run-dir", str(tmp_path / "file")]) == 2
    assert "cannot make the folder" in capsys.readouterr().err


def test_a_study_of_a_collection_has_two_names() -> None:
    lines = (
        "tmaze --corridors 120",
        "pramanik --part tmaze --corridors 120",
        "--part=tmaze pramanik --corridors=120",
        "--corridors 120 --part tmaze pramanik",
    )
    assert len({requested(line).digest("gru", "corridor-120") for line in lines}) == 1
    assert {requested(line).name for line in lines} == {"pramanik/tmaze-published"}


def test_an_added_memory_may_be_named_among_the_models(own_module: Path) -> None:
    for models, kept in (("mine", ["mine"]), ("mine,none", ["none", "mine"])):
        study = requested(f"makkink --models {models} --add-memory mine=mine:Mine")
        assert list(study.models) == kept
    study = requested("makkink --models none --add-memory mine=mine:Mine")
    assert list(study.models) == ["none", "mine"]


def test_a_file_is_found_wherever_it_stands() -> None:
    file = str(Path(__file__).parents[2] / "examples" / "own_study.py")
    assert requested(f"--seeds 2 --list {file}").seeds == (0, 1)


def test_options_make_the_study() -> None:
    study = requested("makkink --part size --models 'lstm, none' --seeds 5 --episodes 9")
    assert list(study.models) == ["lstm", "none"]
    assert study.seeds == (4, 5, 10, 0, 1) and study.episodes == 9
    assert len(study.cells()) == 2 * 17 * 5
    assert first_seeds((0, 1), 1) == (0,)
    repaired = requested("makkink --edition repaired --evaluation-episodes 2000")
    assert repaired.evaluation.episodes == 2000 and len(repaired.seeds) == 30
    with pytest.raises(UserError, match="unknown setting"):
        requested("makkink --part size --settings length-20")


def test_a_failure_is_reported_at_the_end(tmp_path: Path) -> None:
    study = requested("makkink --part length --models lstm --settings length-1")
    failure = Failure(Pack("lstm", ("length-1",), (5,)), "RuntimeError: nothing works")
    rows = [{"model": "lstm", "setting": "length-1", "seed": seed, "mean": 0.5} for seed in (4, 10)]
    told = report(study, StudyResult(tmp_path, rows, [failure]))
    assert "lstm: mean return 0.500 of 2 runs, published 1.000" in told
    assert "failed: lstm on length-1, seed 5: RuntimeError: nothing works" in told


def test_the_table_of_a_terminal_shows_every_model_and_what_is_in_progress() -> None:
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    standing = Standing(
        finished=159,
        total=1113,
        failed=3,
        models={"lstm": (159, 159), "gtrxl": (0, 159)},
        working={f"gtrxl on length-{n}, seeds 4, 5, 10": 0.25 for n in range(10)},
        rate=12345.6,
        seconds=61.0,
        seconds_left=7260.0,
    )
    table = StudyTable(console)
    table.start(Path("runs/x"), requested("makkink"), standing)
    table.message("worker 0 [process 3] died")
    table.close()
    told = console.export_text()
    for part in ("makkink/published: 1,113 runs", "lstm", "159", " 25%  gtrxl on length-0, seeds"):
        assert part in told
    assert "and 2 more" in told and "worker 0 [process 3] died" in told
    assert "159/1113 runs  3 failed  12,346 steps/s  1m01s so far  2h01m left" in told
    first = standing._replace(finished=0, failed=0, rate=0.0, seconds_left=None)
    assert format_standing(first) == "0/1113 runs  starting and compiling  1m01s so far"
    assert format_standing(first._replace(working={})) == "0/1113 runs  1m01s so far"
