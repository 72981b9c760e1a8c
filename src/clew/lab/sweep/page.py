"""The page of a sweep: the best on fresh seeds beside the default, and every trial."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from clew.errors import counted
from clew.lab.sweep.space import Range, text_of
from clew.lab.sweep.storage import SweepTrial
from clew.lab.sweep.sweep import BEST, DEFAULT, Sweep, SweepResult, Winner
from clew.report.document import Block, Chart, Column, Heading, Panel, Table, Text, tabulate
from clew.report.figures import COLOURS, plain
from clew.report.files import Report, write_report
from clew.run.folder import slug
from clew.stats import bootstrap_interval, probability_of_improvement, welch_test

FORM = ".4g"


def write_page(sweep: Sweep, result: SweepResult) -> Report:
    """Writes report.html and report.md with its tables and figures into the sweep's folder."""
    config = sweep.config
    title = f"Settings for {config.env}"
    blocks: list[Block] = [Text(_about(sweep, result))]
    if result.winners:
        blocks += [outcome(result), Text(_note(sweep)), settings(result)]
    for memory, tried in result.tried.items():
        name = slug(memory)
        blocks += [
            Heading(memory, 2, name),
            Chart(
                f"{name}-trials",
                f"{memory}: trials",
                "Each trial's mean score over its seeds, by trial number and by the value of each "
                "setting. The line is the best score so far.",
                [
                    Panel(
                        "by trial; line: best so far",
                        partial(_by_number, tried=tried, score=result.score),
                    ),
                    *_by_setting(sweep, tried, result.score),
                ],
            ),
            _trials(name, memory, tried, result.score),
        ]
    return write_report(result.path, title, blocks, {}, "clew sweep")


def _about(sweep: Sweep, result: SweepResult) -> str:
    config, varied = sweep.config, ", ".join(f"{n} ({_space(s)})" for n, s in sweep.vary.items())
    trials = {m: sum(t.state != "refused" for t in tried) for m, tried in result.tried.items()}
    counts = ", ".join(f"{m} {counted(number, 'trial')}" for m, number in trials.items())
    return (
        f"Searched: {varied}. {counts}, each of {counted(config.seeds, 'seed')} with "
        f"{config.steps:,} environment steps; a score is the mean {result.score} of the episodes "
        "in the last tenth of training."
    )


def _space(space: object) -> str:
    return str(space) if isinstance(space, Range) else ", ".join(map(str, space))  # pyright: ignore


def _note(sweep: Sweep) -> str:
    seed = sweep.config.seed + sweep.config.seeds
    return (
        f"Both were trained with the seeds {seed} to {seed + sweep.fresh_seeds - 1}, which no "
        "trial had: the search's own maximum is the luckiest of many trials, so it is not reported "
        "as a result. In brackets: the 95% bootstrap interval over seeds, too narrow for fewer "
        "than 5; the gain has Welch's interval. A seed that ended no episode in the last tenth of "
        "training has no score there."
    )


def outcome(result: SweepResult) -> Table:
    """The best settings of every memory beside the default, with fresh seeds."""
    rows, records = [], []
    for memory, winner in result.winners.items():
        for which, scores in ((BEST, winner.best.scores), (DEFAULT, winner.default.scores)):
            greedy = winner.greedy[which]
            beside = _beside(winner) if which == BEST else ("", "")
            some = f", {len(scores)} of {len(greedy)} seeds" if len(scores) < len(greedy) else ""
            rows.append([memory, which, _interval(scores) + some, _interval(greedy), *beside])
            records += [
                {"memory": memory, "settings": which, "index": i, "score": a, "greedy": b}
                for i, (a, b) in enumerate(zip(winner.by_seed[which], greedy, strict=True))
            ]
    columns = [
        "memory",
        "settings",
        Column(result.score, "last tenth of training"),
        Column(result.score, "greedy, after training"),
        Column("gain", "last tenth"),
        "probability of improvement",
    ]
    title = "The best settings with fresh seeds"
    return tabulate("outcome", title, columns, rows, records=records)


def _interval(values: Sequence[float]) -> str:
    return format(bootstrap_interval(values), FORM) if values else "none"


def _beside(winner: Winner) -> tuple[str, str]:
    """The gain of the best over the default, and how probably a seed of it is better."""
    best, default = winner.best.scores, winner.default.scores
    if min(len(best), len(default)) < 2:
        return "", ""
    gain = welch_test(np.array(best), np.array(default))
    better = probability_of_improvement(np.array(best)[:, None], np.array(default)[:, None])
    interval = "" if math.isnan(gain.low) else f" [{gain.low:+.4g}, {gain.high:+.4g}]"
    return f"{gain.difference:+.4g}{interval}", format(better, ".2f")


def settings(result: SweepResult) -> Table:
    """The best settings of every memory."""
    rows = [
        [memory, str(winner.trial.number), text_of(winner.values)]
        for memory, winner in result.winners.items()
    ]
    return tabulate("settings", "The best settings", ["memory", "trial", "settings"], rows)


def _trials(name: str, memory: str, tried: Sequence[SweepTrial], score: str) -> Table:
    ordered = sorted(tried, key=lambda t: (t.score is None, -(t.score or 0.0), t.number))
    rows = [
        [str(t.number), t.error or t.state if t.score is None else f"{t.score:{FORM}}"]
        + [text_of(t.values)]
        for t in ordered
    ]
    records = [
        {"trial": t.number, "score": t.score, "state": t.state, "error": t.error, **t.values}
        for t in ordered
    ]
    columns, title = ["trial", score, "settings"], f"{memory}: every trial"
    return tabulate(f"{name}-trials", title, columns, rows, records=records, folded=True)


def _by_number(axes: Axes, tried: Sequence[SweepTrial], score: str) -> None:
    scored = [(trial.number, trial.score) for trial in tried if trial.score is not None]
    if scored:
        numbers, values = np.array(scored).T
        axes.plot(numbers, values, "o", color=COLOURS[0], markersize=3)
        axes.step(numbers, np.maximum.accumulate(values), where="post", color=COLOURS[1])
    axes.set_xlabel("trial")
    axes.set_ylabel(score)


def _by_setting(sweep: Sweep, tried: Sequence[SweepTrial], score: str) -> list[Panel]:
    scored = [trial for trial in tried if trial.score is not None]
    there = [name for name in sweep.vary if any(name in trial.values for trial in scored)]
    return [
        Panel(name, partial(_scatter, name=name, space=sweep.vary[name], tried=scored, score=score))
        for name in there
    ]


def _scatter(
    axes: Axes, name: str, space: Range | Sequence[Any], tried: Sequence[SweepTrial], score: str
) -> None:
    values, scores = [t.values[name] for t in tried], np.array([t.score for t in tried])
    if isinstance(space, Range):
        if space.log:
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5))
    else:  # in the order in which they were declared, including those not tried
        known = [str(value) for value in space]
        axes.set_xticks(range(len(known)), [plain(value) for value in known])
        axes.set_xlim(-0.5, len(known) - 0.5)
        values = [known.index(str(value)) for value in values]
    axes.plot(values, scores, "o", color=COLOURS[0], markersize=3)
    axes.set_xlabel(name)
    axes.set_ylabel(score)
