"""The report of the T-Maze study: its blocks, sentences and tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clew.lab import claims
from clew.lab.claims import Judged, seeds_that_decide
from clew.lab.grid.results import Row
from clew.lab.studies.report.budget import OneBudget, Shown, costs_table, scores_table
from clew.lab.studies.report.comparisons import interval_text
from clew.lab.studies.report.costs import provenance
from clew.lab.studies.report.data import Page, StudyData, command_of
from clew.lab.studies.report.search import SearchReport
from clew.lab.studies.report.tables import MISSING, shade
from clew.lab.studies.tmaze import figures, grid
from clew.lab.studies.tmaze.claims import CLAIMS, corridor_of, mean_interval, scores_of
from clew.lab.studies.tmaze.figures import WINDOWS, further_success, own_success
from clew.lab.studies.tmaze.grid import AGENTS, CORRIDORS, EDITION_OF, SEARCH_EDITION_OF
from clew.report.document import (
    Block,
    Cell,
    Column,
    Heading,
    Table,
    Text,
    counted,
    listed,
    tabulate,
)
from clew.report.figures import Styles
from clew.stats import welch_test

_EDITIONS = {
    "published": "The agents are those of the authors' code: GTrXL's learner sees its whole chunk, "
    "its actor only a window; AReLiT's two frequencies are one; ReLiT's gates are joint; a "
    "time-out terminates an episode.",
    "repaired": "The agents are those of the thesis's text: windows are banded, AReLiT has a half "
    "wave of four vectors, ReLiT has the thesis's gates, and returns are bootstrapped at a "
    "time-out.",
}


def _command(data: StudyData) -> str:
    which, search = (EDITION_OF | SEARCH_EDITION_OF)[data.name], data.name not in EDITION_OF
    lengths = [corridor_of(setting.split(" ")[0]) for setting in data.study["settings"]]
    corridors = tuple(dict.fromkeys(lengths))
    words = f"pramanik --part tmaze --edition {which}{' --sweep' if search else ''}"
    if corridors != CORRIDORS:
        words += f" --corridors {','.join(map(str, corridors))}"
    return command_of(data, words, (grid.sweep if search else grid.study)(which, corridors))


def _about_search(data: StudyData, rows: Sequence[Row]) -> str:
    corridors = sorted({corridor_of(row["setting"].split(" ")[0]) for row in rows})
    return (
        f"{counted(len(rows), 'training')} on corridors of "
        f"{listed([str(n) for n in corridors])}, {counted(len(data.seeds), 'seed')}, "
        f"{rows[0]['steps']:,} steps each. The thesis searches with 5 seeds of 5M steps on five "
        "corridors."
    )


def _authors_rates(data: StudyData) -> Mapping[str, tuple[float, float]]:
    own = grid.models(SEARCH_EDITION_OF[data.name])
    return {name: (c.a2c.learning_rate, c.a2c.entropy_cost) for name, c in own.items()}


SEARCH = SearchReport(
    grid.SEARCH,
    score="success",
    digits=3,
    about=_about_search,
    note="Mean success over the last 100K steps, over all corridors and seeds.",
    published=_authors_rates,
    shaded=True,
)
"""Of Table A.1's search."""


def _steady(rows: Sequence[Row]) -> dict[str, Any]:
    """Further numbers of a cell: the share that reached the junction, and success in new
    episodes."""
    return {
        "junction": float(np.mean([row["last"]["junction"] for row in rows])),
        "steps": rows[0]["steps"],
        "evaluated": float(np.mean([row["mean"] for row in rows])),
    }


SUCCESS = Shown(
    "success",
    axis="corridor",
    labels=lambda setting: (setting.replace("-", " "), corridor_of(setting)),
    digits=3,
    note="Mean over seeds ± its standard error, as published. Below: the 95% interval by which the "
    "claims are judged, the number of seeds, and the fraction of episodes that reached the "
    "junction. Guessing gives 0.5.",
    interval_of=mean_interval,
    more=_steady,
    below=("junction",),
    shaded=True,
)


def blocks(data: StudyData, styles: Styles, note: str) -> list[Block | None]:
    """The blocks of a folder at the budget of most of its rows."""
    scores = scores_of(data)
    judged = [claim.judge(scores) for claim in CLAIMS]
    agents = [model for model in scores.models if model in AGENTS]
    others = [model for model in scores.models if model not in AGENTS]
    windows, table = figures.windows(scores, styles), windows_table(scores)
    return [
        Heading(scores.data.name, 1, scores.data.slug),
        scores.numbers(judged, "of one core"),
        *(Text(sentence) for sentence in _sentences(scores)),
        *_claims(scores, judged),
        data.heading("Figures 5.2 and 5.3", "figures"),
        *(figures.published(scores, number, styles, judged) for number in figures.FIGURES),
        figures.controls(scores, styles),
        scores_table(scores, f"Success over the last 100K of {scores.budget}", SUCCESS),
        data.heading("What GTrXL's learner sees", "windows-section") if windows or table else None,
        windows,
        table,
        data.heading("Learning", "learning-section"),
        figures.learning(scores, styles, "success", agents, "agents"),
        figures.learning(scores, styles, "return", agents, "agents"),
        figures.learning(scores, styles, "success", others, "controls"),
        data.heading("Longer corridors", "lengths-section"),
        figures.lengths(scores, styles),
        lengths_table(scores),
        data.heading("Cost", "cost-section"),
        costs_table(scores, _COSTS, measured=True),
        data.heading("How this was made", "made-section"),
        provenance(scores.data, note),
    ]


def _claims(scores: OneBudget, judged: Sequence[Judged]) -> list[Table]:
    note = (
        "A claim is a range of success rates. It holds if, at every corridor, the whole 95% "
        "interval of the mean over seeds lies in the range, and does not hold if the interval lies "
        "outside at one of them. The interval is Student's, or wider where so few seeds may all "
        "have missed a kind of outcome. The seeds that would decide are those that decide every "
        "corridor if the observed mean and deviation are right (power 0.8); an estimate from one "
        "or two seeds is rough. One seed that solves a longer corridor refutes that a window is "
        "necessary; it says nothing about the mean over seeds."
    )
    title = f"Claims of Figures 5.2 and 5.3 at {scores.budget}, {scores.seeds()}"
    return claims.tables(judged, scores.data.slug, title, note)


def _sentences(scores: OneBudget) -> list[str]:
    agents = [model for model in AGENTS if model in scores.models]
    others = [model for model in scores.models if model not in AGENTS]
    lengths = listed([str(corridor_of(n)) for n in scores.settings])
    sentences = [
        _EDITIONS[EDITION_OF[scores.data.name]],
        f"{counted(len(agents), 'agent')} of the thesis ({listed(agents)})"
        + (f" and {counted(len(others), 'control')} ({listed(others)})" if others else "")
        + f" on corridors of {lengths}, {scores.seeds()}, {scores.budget} each. The thesis has 50 "
        "seeds of 10M steps on corridors of 120 to 200, with the best of 25 pairs of learning rate "
        "and entropy cost; here the pairs are those of the authors' configurations.",
    ]
    missing = [str(n) for n in CORRIDORS if f"corridor-{n}" not in scores.settings]
    if missing:
        sentences.append(f"Corridors that were not run: {listed(missing)}.")
    return sentences + scores.not_shown


def windows_table(scores: OneBudget) -> Table | None:
    """GTrXL-128 with its learner's window as published and banded, corridor by corridor."""
    pair = WINDOWS[EDITION_OF[scores.data.name]]
    both = [n for n in scores.settings if all(scores.scores(model, n).size for model in pair)]
    if not both:
        return None
    rows = []
    for setting in both:
        wide, banded = (scores.scores(model, setting) for model in pair)
        cells = [
            Cell(f"{v.mean():.3f}", (f"seeds: {', '.join(f'{value:.2f}' for value in v)}",))
            for v in (wide, banded)
        ]
        rows.append([setting.replace("-", " "), *cells, Cell(*_difference(wide, banded))])
    columns = ["", Column("sees its chunk", "as published"), Column("banded", "repaired")]
    title = f"GTrXL-128: what its learner sees, {scores.budget}"
    note = (
        "Success over the last 100K steps. The difference is banded minus published, with Welch's "
        "95% interval. The seeds are those that each would need for a power of 0.8 if the observed "
        "means and deviations are right."
    )
    columns.append("banded less published")
    return tabulate(f"{scores.data.slug}-windows-table", title, columns, rows, note)


def _difference(wide: np.ndarray, banded: np.ndarray) -> tuple[str, tuple[str, ...]]:
    difference = float(banded.mean() - wide.mean())
    text = f"{difference:+.3f}"
    if min(wide.size, banded.size) < 2:
        return text, ("one seed: no interval",)
    test = welch_test(banded, wide)
    p, interval = f"p = {test.p:.2g}", interval_text(test.low, test.high)
    below = [f"{interval}, {p}" if interval else p]
    needed = seeds_that_decide(difference, float(banded.std(ddof=1)), float(wide.std(ddof=1)))
    return text, (*below, f"{needed:,} seeds each" if needed else "seeds needed: unknown")


def lengths_table(scores: OneBudget) -> Table:
    """Success on longer corridors, agent by agent."""
    names = sorted(
        {n for row in scores.data.rows for n in row["further"] or ()},
        key=lambda name: (corridor_of(name), name),
    )
    rows, records = [], []
    for setting in scores.settings:
        corridor = corridor_of(setting)
        for model in scores.models:
            trained = scores.rows(model, setting)
            sent = [row for row in trained if row["further"]]
            if not trained:
                continue
            below = (f"trained on {corridor}", f"{len(sent)} of {counted(len(trained), 'seed')}")
            cells = [Cell(model, below), _mean(own_success(trained))]
            stretched, plain = further_success(sent, corridor) if sent else ({}, {})
            for name in names:
                found = stretched if name.endswith("-stretched") else plain
                values = found.get(corridor_of(name)) if corridor_of(name) != corridor else None
                cells.append(_mean(values))
                if values:
                    record = {"model": model, "trained": corridor, "evaluated": name}
                    records.append(record | {"seeds": len(values), "mean": float(np.mean(values))})
            rows.append(cells)
    columns = ["agent", "own corridor", *(Column(*_length_words(name)) for name in names)]
    return tabulate(
        f"{scores.data.slug}-lengths-table",
        f"Success on longer corridors, {scores.budget}",
        columns,
        rows,
        "Mean success in fresh episodes, with actions sampled from the policy. On the own corridor "
        "the mean is over all seeds. On others it is over the seeds that reach the junction of "
        "their own corridor in at least half of the episodes; their number is below the name.",
        records,
        folded=True,
    )


def _mean(values: list[float] | None) -> Cell:
    if not values:
        return MISSING
    mean = float(np.mean(values))
    return Cell(f"{mean:.2f}", shade=shade(mean))


def _length_words(name: str) -> tuple[str, str]:
    number, _, stretched = name.removeprefix("corridor-").partition("-")
    return number, stretched or "unstretched"


_COSTS = (
    "Wall time on one core, each cell alone on it with one thread; {}. Other work on the machine "
    "is included. The evaluation is on the own corridor and the longer ones."
)

_PAGES = {
    **dict.fromkeys(EDITION_OF, Page(_command, form="the T-Maze study", blocks=blocks)),
    **dict.fromkeys(
        SEARCH_EDITION_OF, Page(_command, form="a search of the T-Maze study", blocks=SEARCH.blocks)
    ),
}


def page_of(name: str) -> Page | None:
    """The page of a grid of the study, or of its search, by its name; None for others."""
    return _PAGES.get(name)
