"""Which blocks the Memory Maze study's report has, and what its sentences say."""

from collections.abc import Sequence

from clew.errors import UserError
from clew.lab.studies.memory_maze import figures, sweep, tables
from clew.lab.studies.memory_maze.claims import Claim, judge
from clew.lab.studies.memory_maze.grid import STEPS
from clew.lab.studies.memory_maze.scores import NAME, Grid, make_grid
from clew.lab.studies.report.costs import made
from clew.lab.studies.report.edition import Edition
from clew.lab.studies.report.verdicts import HELD, NOT_HELD, NOT_RUN, OPEN
from clew.report.document import Block, Chart, Heading, Numbers, Text, counted, duration, listed
from clew.report.figures import Styles


def is_memory_maze(edition: Edition) -> bool:
    """Whether a study's folder is of the Memory Maze study."""
    return edition.name.startswith(NAME)


def memory_maze_blocks(editions: Sequence[Edition], styles: Styles, note: str) -> list[Block]:
    """All blocks of a report, folder by folder; charts that nothing is there for are left out.

    Raises:
        UserError: for searches and trainings in one report.
    """
    searches = [edition.name == sweep.NAME for edition in editions]
    if all(searches):
        return sweep.sweep_blocks(editions, note)
    if any(searches):
        raise UserError("a search has a report of its own: give its folder alone")
    blocks = [block for edition in editions for block in _edition(make_grid(edition), styles, note)]
    return [block for block in blocks if not isinstance(block, Chart) or block.panels]


def _edition(grid: Grid, styles: Styles, note: str) -> list[Block]:
    judged = judge(grid)
    learner = tables.learner(grid)
    return [
        Heading(grid.edition.name, 1, grid.edition.slug),
        _numbers(grid, judged),
        *(Text(sentence) for sentence in _sentences(grid)),
        *tables.claims(grid, judged),
        grid.heading("Learning", "learning"),
        figures.learning(grid, styles),
        tables.returns(grid),
        figures.windows(grid, styles),
        grid.heading("Speed and memory", "speed"),
        figures.speed(grid),
        *([learner] if learner else []),
        tables.costs(grid),
        grid.heading("How this was made", "made-section"),
        made(grid.edition, note),
    ]


def _numbers(grid: Grid, judged: Sequence[Claim]) -> Numbers:
    verdicts = [claim.verdict for claim in judged]
    rows = grid.edition.rows
    return Numbers(
        [
            (f"{len(rows):,}", f"trainings of {grid.budget}"),
            (grid.seeds_of(grid.models, grid.mazes).split(" seed")[0], "seeds a cell"),
            (str(verdicts.count(HELD)), f"of {len(judged)} claims held"),
            (str(verdicts.count(NOT_HELD)), "not held"),
            (str(verdicts.count(OPEN)), "undecided"),
            (str(verdicts.count(NOT_RUN)), "not run"),
            (duration(sum(row["seconds"] for row in rows)), "of training"),
        ]
    )


def _sentences(grid: Grid) -> list[str]:
    seeds = grid.seeds_of(grid.models, grid.mazes)
    share = 100 * grid.steps / STEPS
    sentences = [
        f"{counted(len(grid.models), 'agent')} ({listed(list(grid.models))}) in "
        f"{listed(list(grid.mazes))}, {seeds}, {grid.budget} each: {share:.2g}% of the thesis's "
        "100M steps. It has three seeds, and the best of nine learning rates and entropy costs, "
        "which it does not tell."
    ]
    sentences += grid.not_shown
    silent = sum(row["last"]["return"] is None for row in grid.edition.rows)
    if silent:
        sentences.append(f"In {counted(silent, 'training')} no episode ended at the end.")
    return sentences
