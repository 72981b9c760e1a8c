"""Which blocks the T-Maze study's report has, and what its sentences say."""

from collections.abc import Sequence

from clew.lab.studies.report.costs import made
from clew.lab.studies.report.edition import Edition
from clew.lab.studies.report.verdicts import HELD, NOT_HELD, OPEN
from clew.lab.studies.tmaze import figures, sweep, tables
from clew.lab.studies.tmaze.claims import CLAIMS, judge, overall
from clew.lab.studies.tmaze.grid import AGENTS, CORRIDORS
from clew.lab.studies.tmaze.scores import NAME, Grid, make_grid
from clew.report.document import Block, Chart, Heading, Numbers, Text, counted, duration, listed
from clew.report.figures import Styles

_EDITIONS = {
    "published": "Agents as the authors' code has them: GTrXL's learner sees all of its chunk and "
    "its actor a window, AReLiT's two frequencies are one, ReLiT's gates are joint, a time-out "
    "ends an episode.",
    "repaired": "Agents as the thesis's text means them: windows are banded, AReLiT has a half "
    "wave of four vectors, ReLiT the thesis's gates, a time-out is completed with a value.",
}


def is_tmaze(edition: Edition) -> bool:
    """Whether a study's folder is of the T-Maze study."""
    return edition.name.startswith(NAME)


def tmaze_blocks(editions: Sequence[Edition], styles: Styles, note: str) -> list[Block]:
    """All blocks of a report, edition by edition; charts that nothing is there for are left out."""
    if all(edition.name.startswith(sweep.NAME) for edition in editions):
        return sweep.sweep_blocks(editions, note)
    blocks = [block for edition in editions for block in _edition(make_grid(edition), styles, note)]
    return [block for block in blocks if not isinstance(block, Chart) or block.panels]


def _edition(grid: Grid, styles: Styles, note: str) -> list[Block]:
    agents = [model for model in grid.models if model in AGENTS]
    others = [model for model in grid.models if model not in AGENTS]
    beside = [block for block in (figures.windows(grid, styles), tables.windows(grid)) if block]
    return [
        Heading(grid.edition.name, 1, grid.edition.slug),
        _numbers(grid),
        *(Text(sentence) for sentence in _sentences(grid)),
        *tables.claims(grid),
        grid.heading("Figures 5.2 and 5.3", "figures"),
        figures.published(grid, "5.2", styles),
        figures.published(grid, "5.3", styles),
        figures.controls(grid, styles),
        tables.success(grid),
        *([grid.heading("What GTrXL's learner sees", "windows-section")] if beside else []),
        *beside,
        grid.heading("Learning", "learning-section"),
        figures.learning(grid, styles, "success", agents, "agents"),
        figures.learning(grid, styles, "return", agents, "agents"),
        figures.learning(grid, styles, "success", others, "controls"),
        grid.heading("Longer corridors", "lengths-section"),
        figures.lengths(grid, styles),
        tables.lengths(grid),
        grid.heading("Cost", "cost-section"),
        tables.costs(grid),
        grid.heading("How this was made", "made-section"),
        made(grid.edition, note),
    ]


def _numbers(grid: Grid) -> Numbers:
    verdicts = [overall(judge(grid, claim))[0] for claim in CLAIMS]
    rows = grid.edition.rows
    return Numbers(
        [
            (f"{len(rows):,}", f"trainings of {grid.budget}"),
            (grid.seeds().split(" seed")[0], "seeds a cell"),
            (str(verdicts.count(HELD)), f"of {len(CLAIMS)} claims held"),
            (str(verdicts.count(NOT_HELD)), "not held"),
            (str(verdicts.count(OPEN)), "undecided"),
            (duration(sum(row["seconds"] for row in rows)), "of one core"),
        ]
    )


def _sentences(grid: Grid) -> list[str]:
    agents = [model for model in AGENTS if model in grid.models]
    others = [model for model in grid.models if model not in AGENTS]
    lengths = listed([str(n) for n in grid.corridors])
    sentences = [
        _EDITIONS.get(grid.which, ""),
        f"{counted(len(agents), 'agent')} of the thesis ({listed(agents)})"
        + (f" and {counted(len(others), 'control')} ({listed(others)})" if others else "")
        + f" on corridors of {lengths}, {grid.seeds()}, {grid.budget} each. The thesis has 50 "
        "seeds of 10M steps on corridors of 120 to 200, and the best of 25 learning rates and "
        "entropy costs; here those of the authors' configurations.",
    ]
    missing = [str(n) for n in CORRIDORS if n not in grid.corridors]
    if missing:
        sentences.append(f"Corridors that were not run: {listed(missing)}.")
    sentences += grid.not_shown
    return [sentence for sentence in sentences if sentence]
