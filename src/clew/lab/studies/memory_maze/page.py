"""The report of the Memory Maze study: its blocks, sentences and tables."""

from collections.abc import Sequence

from clew.lab import claims
from clew.lab.claims import Judged
from clew.lab.grid.results import Row
from clew.lab.studies.memory_maze import figures, grid
from clew.lab.studies.memory_maze.claims import CLAIMS, scores_of, speed_of
from clew.lab.studies.memory_maze.grid import STEPS
from clew.lab.studies.report.budget import OneBudget, Shown, costs_table, scores_table
from clew.lab.studies.report.costs import provenance
from clew.lab.studies.report.data import Page, StudyData, command_of
from clew.lab.studies.report.search import SearchReport
from clew.report.document import Block, Cell, Heading, Table, Text, counted, listed, tabulate
from clew.report.figures import Styles
from clew.run.config import config_from_json


def _command(data: StudyData) -> str:
    search = data.name == grid.SEARCH_NAME
    make, own = (grid.sweep, [grid.SWEEP_SIZE]) if search else (grid.study, list(grid.SIZES))
    words = f"pramanik --part memory-maze{' --sweep' if search else ''}{_acting(data)}"
    words += "" if search else _rates(data)
    tasks = list(dict.fromkeys(task["env"] for task in data.study["settings"].values()))
    mazes = [size for size in grid.SIZES if grid.maze(size) in tasks]
    if len(mazes) < len(tasks):
        return command_of(data, f"{words} --env {','.join(tasks)}", make(tasks=tasks))
    if mazes != own:
        words += f" --mazes {','.join(map(str, mazes))}"
    return command_of(data, words, make(mazes=mazes))


def _acting(data: StudyData) -> str:
    """The options of acting that differ from the thesis's."""
    model = config_from_json(next(iter(data.study["models"].values())))
    given = {
        "runner": (model.runner, grid.RUNNER),
        "actors": (model.asynchronous.actors, grid.ACTORS),
        "environments": (model.ppo.num_envs, grid.ENVIRONMENTS),
    }
    return "".join(f" --{n} {value}" for n, (value, usual) in given.items() if value != usual)


def _rates(data: StudyData) -> str:
    """The option that gave agents the best pairs of a search, whose folder is not recorded."""
    usual, made = grid.study().models, data.study["models"]
    learnings = [(usual[n].ppo, config_from_json(made[n]).ppo) for n in usual if n in made]
    pairs = [[(ppo.learning_rate, ppo.entropy_cost) for ppo in both] for both in learnings]
    searched = any(own != given for own, given in pairs)
    return " --rates-from SEARCH" if searched else ""


def _about_search(data: StudyData, rows: Sequence[Row]) -> str:
    tasks = list(dict.fromkeys(row["setting"].rsplit(" ", 2)[0] for row in rows))
    seeds, last = counted(len(data.seeds), "seed"), rows[0]["last"]["steps"]
    return (
        f"{counted(len(rows), 'training')} on {listed(tasks)}, {seeds}, {rows[0]['steps']:,} steps "
        f"each; pairs are chosen by the last {last:,}. The thesis searches with 3 seeds of 15M "
        "steps in the maze of 11x11 and chooses by the last 1M; it does not report its choice."
    )


SEARCH = SearchReport(
    grid.SEARCH,
    score="return",
    digits=2,
    about=_about_search,
    note="Mean over seeds of the return over the last steps.",
)
"""Of Table A.3's search."""


RETURNS = Shown(
    "returns",
    axis="maze",
    labels=lambda maze: (maze, maze),
    digits=2,
    note="Mean over seeds ± its standard error, of the episodes that ended in these steps. Below: "
    "the 95% bootstrap interval over seeds and the number of seeds.",
)
_COSTS = "Wall time, including other work on the machine; {}."


def blocks(data: StudyData, styles: Styles, note: str) -> list[Block | None]:
    """The blocks of a folder at the budget of most of its rows."""
    scores = scores_of(data)
    judged = [claim.judge(scores) for claim in CLAIMS]
    last = max(row["last"]["steps"] for row in scores.data.rows)
    return [
        Heading(scores.data.name, 1, scores.data.slug),
        scores.numbers(judged, "of training"),
        *(Text(sentence) for sentence in _sentences(scores)),
        *_claims(scores, judged),
        data.heading("Learning", "learning"),
        figures.learning(scores, styles, judged),
        scores_table(scores, f"Return over the last {last:,} of {scores.budget}", RETURNS),
        figures.windows(scores, styles, judged),
        data.heading("Speed and memory", "speed"),
        figures.speed(scores, judged),
        learner_table(scores),
        costs_table(scores, _COSTS),
        data.heading("How this was made", "made-section"),
        provenance(scores.data, note),
    ]


def _claims(scores: OneBudget, judged: Sequence[Judged]) -> list[Table]:
    note = (
        "An order holds if Welch's 95% interval of every difference between neighbours is above 0, "
        "and does not hold if one interval is below. Windows are alike if the intervals of all "
        "differences lie within a tenth of the mean return. A window converges more slowly if it "
        "takes more steps to nine tenths of the lowest final return. The claims on speed and "
        "memory hold if the difference, with its whole interval, is at least as large as the "
        "thesis's. One seed decides nothing. The seeds that would decide are a rough estimate "
        "(power 0.8)."
    )
    if scores.steps < STEPS:
        note += (
            f" All verdicts are on agents after {scores.budget}. The thesis's claims are for 100M "
            "steps; one that does not hold here may hold there."
        )
    title = f"Claims of section 5.2 at {scores.budget}"
    return claims.tables(judged, scores.data.slug, title, note)


def _sentences(scores: OneBudget) -> list[str]:
    share = 100 * scores.steps / STEPS
    sentences = [
        f"{counted(len(scores.models), 'agent')} ({listed(list(scores.models))}) in "
        f"{listed(list(scores.settings))}, {scores.seeds()}, {scores.budget} each: {share:.2g}% of "
        "the thesis's 100M steps. The thesis has three seeds and the best of nine pairs of "
        "learning rate and entropy cost, which it does not report."
    ]
    sentences += scores.not_shown
    silent = sum(row["last"]["return"] is None for row in scores.data.rows)
    if silent:
        sentences.append(f"In {counted(silent, 'training')} no episode ended in the last steps.")
    return sentences


def learner_table(scores: OneBudget) -> Table | None:
    """The measurements of the learner."""
    speed = speed_of(scores)
    if not speed:
        return None
    rows, records = [], []
    for model, row in speed["rows"].items():
        rate, faster = row["rate"], row["times_faster"]
        rows.append(
            [
                model,
                Cell(f"{rate['middle']:,.0f}", (f"[{rate['low']:,.0f}, {rate['high']:,.0f}]",)),
                Cell(f"{faster['middle']:.2f}", (f"[{faster['low']:.2f}, {faster['high']:.2f}]",)),
                f"{row['bytes'] / 2**20:,.0f}",
                f"{row['multiply_adds'] / 1e6:.1f}",
            ]
        )
        records.append({"model": model, "rate": rate["middle"], "faster": faster["middle"]})
        records[-1] |= {"bytes": row["bytes"], "multiply_adds": row["multiply_adds"]}
    machine = speed["machine"]
    heads = ("agent", "frames/s", "relative to gtrxl-256", "MiB", "million multiply-adds per frame")
    first = next(iter(speed["rows"].values()))
    return tabulate(
        f"{scores.data.slug}-learner",
        f"The learner alone: {machine['device']}, {machine['cores']} cores",
        heads,
        rows,
        f"One gradient step, timed at {first['frames']:,} frames of noise; memory as planned for "
        f"{first['planned_frames']:,} frames. Median of the turns and its 95% interval.",
        records,
    )


_PAGES = {
    grid.NAME: Page(_command, form="the Memory Maze study", blocks=blocks),
    grid.SEARCH_NAME: Page(
        _command, form="a search of the Memory Maze study", blocks=SEARCH.blocks
    ),
}


def page_of(name: str) -> Page | None:
    """The page of a grid of the study, or of its search, by its name; None for others."""
    return _PAGES.get(name)
