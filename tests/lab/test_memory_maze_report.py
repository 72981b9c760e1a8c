"""The Memory Maze study's report: claims by rule, figures, searches, and missing parts."""

from dataclasses import replace
from pathlib import Path

import pytest

from clew.errors import UserError
from clew.lab.claims import HELD, NOT_HELD, NOT_RUN, UNDECIDED, Judged
from clew.lab.grid import Cell, read_results
from clew.lab.studies.memory_maze import figures
from clew.lab.studies.memory_maze import grid as study
from clew.lab.studies.memory_maze.claims import CLAIMS, scores_of
from clew.lab.studies.memory_maze.grid import SEARCH
from clew.lab.studies.report.data import read_study
from clew.lab.studies.report.make import make_report
from clew.report.figures import new_figure, styles_of
from made_up_rows import write_rows, write_whole
from memory_maze_study import STEPS, maze_row, write_learner, write_maze
from report_study import undrawn
from requested import requested
from slow_cases import fast_only

__all__ = ["undrawn"]

AS_PUBLISHED = {"lstm": 20.0, "gtrxl-256": 15.0, "gtrxl-128": 15.02, "gtrxl-64": 15.04}
AS_PUBLISHED |= {"arelit": 10.0, "none": 2.0}


def published(cell: Cell) -> float:
    """A return as in the thesis, with a little noise by seed."""
    value = AS_PUBLISHED[cell.model]
    if cell.setting == "15x15":
        value = {"lstm": 15.0, "gtrxl-256": 20.0}.get(cell.model, value)
    return value + 0.1 * cell.seed


def judged(folder: Path) -> list[Judged]:
    """The claims of a folder."""
    scores = scores_of(read_study(folder))
    return [claim.judge(scores) for claim in CLAIMS]


def test_what_the_thesis_tells_is_held(tmp_path: Path) -> None:
    folder = write_maze(tmp_path, published)
    write_learner(folder, 1.6, 500)
    verdicts = [claim.verdict for claim in judged(folder)]
    slower = verdicts.pop(5)  # all windows arrive in the same bin
    assert slower == UNDECIDED and set(verdicts) == {HELD} and len(verdicts) == 7


def test_the_opposite_is_not_held(tmp_path: Path) -> None:
    folder = write_maze(
        tmp_path, lambda cell: 30.0 - published(cell) + 5 * (cell.model == "gtrxl-64")
    )
    write_learner(folder, 1.1, 900)
    verdicts = [claim.verdict for claim in judged(folder)]
    assert verdicts == [NOT_HELD] * 5 + [UNDECIDED] + [NOT_HELD] * 2


def test_one_seed_decides_nothing_and_two_say_how_many_would(tmp_path: Path) -> None:
    folder = write_maze(tmp_path / "one", published, seeds=(0,))
    verdicts = [claim.verdict for claim in judged(folder)]
    assert verdicts[:6] == [UNDECIDED] * 6

    def noisy(cell: Cell) -> float:
        return AS_PUBLISHED[cell.model] + 8 * cell.seed

    folder = write_maze(tmp_path / "two", noisy, seeds=(0, 1))
    claim = judged(folder)[0]
    assert claim.verdict == UNDECIDED and claim.needed is not None and 2 < claim.needed < 100


def test_slower_is_told_by_the_curves(tmp_path: Path) -> None:
    folder = write_maze(tmp_path, published)
    rows = read_results(folder)
    for row in rows:
        late = row["model"] == "gtrxl-64"
        early = not late or row["seed"] == 2
        row["curve"]["return"] = [None, 1.0 if late else 15.0, 15.0 if early else 1.0, 15.0]
    write_rows(folder, rows)
    (claim,) = (c for c in judged(folder) if "slowly" in c.text)
    assert claim.verdict == HELD


def test_without_a_measurement_the_trainings_tell_the_speed(tmp_path: Path) -> None:
    claims = judged(write_maze(tmp_path, published))
    faster, smaller = claims[-2:]
    assert faster.verdict == NOT_HELD and faster.findings[0].seeds == "12"  # 1.50 times, not 1.54
    assert smaller.verdict == NOT_RUN


def test_seeds_that_agree_have_no_interval_and_returns_may_be_negative(tmp_path: Path) -> None:
    """As in another task; the axis of returns was upside down."""
    folder = write_maze(tmp_path, lambda cell: -100.0)
    seen = {finding.seen for claim in judged(folder)[:4] for finding in claim.findings}
    assert seen == {"-100.00 and -100.00, difference 0.00"}
    scores = scores_of(read_study(folder))
    for panel in figures.learning(scores, styles_of(scores.models), judged(folder)).panels:
        axes = new_figure(3.0, 2.0).subplots()
        panel.draw(axes)
        low, high = axes.get_ylim()
        assert low <= -100.0 and low < high


SUBSETS = {
    "one cell": ("lstm", "9x9", 0),
    "one agent": ("arelit", None, None),
    "one maze": (None, "13x13", None),
    "another task": (None, "tiny", 0),
}


@pytest.mark.parametrize("subset", fast_only(SUBSETS, "one agent", "another task"))
def test_any_rows_make_a_report(subset: str, tmp_path: Path) -> None:
    model, maze, seed = SUBSETS[subset]

    def some(cell: Cell) -> float | None:
        there = (
            (model or cell.model) == cell.model
            and (maze or cell.setting) == cell.setting
            and (cell.seed if seed is None else seed) == cell.seed
        )
        return published(cell) if there else None

    tasks = {"settings": study.study(tasks=["m:tiny"]).settings} if maze == "tiny" else {}
    if tasks:
        tasks = {"settings": {"tiny": tasks["settings"]["m-tiny"]}}
    folder = write_maze(tmp_path, some, **tasks)
    report = make_report([folder])
    told = report.markdown.read_text()
    names = {path.stem.removeprefix("pramanik-memory-maze-") for path in report.figures}
    assert {"figure-5-5", "figure-5-6"} <= names | {"figure-5-5"}
    assert ("figure-5-7" in names) == (subset in ("one maze", "another task"))
    assert "Claims of section 5.2" in told and "0.4M steps" in told


@pytest.mark.slow
def test_a_whole_report_has_the_figures_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    folder = write_maze(tmp_path, published)
    write_learner(folder, 1.6, 500)
    more = maze_row(Cell("lstm", "9x9", 0), 3.0, steps=2 * STEPS)
    silent = maze_row(Cell("none", "9x9", 7), 1.0)
    silent["mean"] = silent["last"]["return"] = None
    silent["curve"]["return"] = [None] * 4
    write_rows(folder, [more, silent], "a")
    report = make_report([folder])
    told = report.markdown.read_text()
    assert "1 row of another budget (800,000 steps)" in told and "In 1 training no episode" in told
    assert len(report.figures) == 3
    with pytest.raises(UserError, match="Memory Maze study has its own form of report"):
        make_report([folder, Path("results/makkink-published")])
    (folder / "memory-maze-learner.json").write_text("{")
    with pytest.raises(UserError, match="memory-maze-learner.json cannot be read"):
        make_report([folder])


@pytest.fixture
def search(tmp_path: Path) -> Path:
    """A search in which one pair of each agent wins."""
    whole = replace(study.sweep(), steps=STEPS).only(["lstm", "arelit"])
    won = {"lstm": "11x11 rate-0.0025 entropy-0.03", "arelit": "11x11 rate-2.5e-05 entropy-0.0003"}
    rows = [maze_row(c, 9.0 if won[c.model] == c.setting else 1.0) for c in whole.cells()]
    rows += [maze_row(Cell("lstm", rows[0]["setting"], 0), 99.0, steps=2 * STEPS)]
    # Agents with few trainings count less, however good.
    rows += [maze_row(Cell("lstm", "11x11 rate-1 entropy-1", 0), 99.0)]
    return write_whole(tmp_path / "search", whole, rows)


@pytest.mark.usefixtures("undrawn")
def test_a_search_chooses_and_the_study_takes_it(search: Path, tmp_path: Path) -> None:
    assert SEARCH.best_rates(search, study.SEARCH_NAME) == {
        "lstm": (2.5e-3, 0.03),
        "arelit": (2.5e-5, 0.0003),
    }
    made = requested(f"pramanik --part memory-maze --rates-from {search}")
    rates = {n: (c.ppo.learning_rate, c.ppo.entropy_cost) for n, c in made.models.items()}
    assert rates["lstm"] == (2.5e-3, 0.03) and rates["none"] == rates["arelit"] == (2.5e-5, 0.0003)
    assert rates["gtrxl-64"] == (2.5e-4, 0.003)
    report = make_report([search])
    told = report.markdown.read_text()
    assert "0.0025, 0.03" in told and len(report.tables) == 4
    assert "1 row of another budget (800,000 steps) is not shown." in told
    assert "--rates-from" not in told
    folder = write_maze(tmp_path / "given", published, models=made.models)
    assert "maze --rates-from SEARCH -" in make_report([folder]).markdown.read_text()
    folder = write_maze(tmp_path / "grid", published)
    assert "--rates-from" not in make_report([folder]).markdown.read_text()
    with pytest.raises(UserError, match="not to a search"):
        SEARCH.best_rates(folder, study.SEARCH_NAME)
    with pytest.raises(UserError, match="has its own form of report: give only its folders"):
        make_report([folder, search])
