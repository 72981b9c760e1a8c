"""Makes a report of studies: its blocks, and its page, tables and figures as files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from clew.errors import UserError
from clew.lab.grid.results import FAILURES
from clew.lab.grid.study import Cell
from clew.lab.studies.report import charts
from clew.lab.studies.report.comparisons import (
    ALPHA,
    DIFFERS,
    beside_published,
    pairs,
    published_tests,
    with_many_seeds,
)
from clew.lab.studies.report.costs import costs, provenance, rates
from clew.lab.studies.report.data import StudyData, cells_of, read_study
from clew.lab.studies.report.means import mean_score, some_seeds
from clew.lab.studies.report.tables import (
    EXACT,
    aggregates,
    floors,
    results,
    score_label,
    summary,
    title_of,
)
from clew.report.document import (
    Block,
    Chart,
    Heading,
    Numbers,
    Text,
    counted,
    duration,
    listed,
)
from clew.report.figures import Styles, styles_of
from clew.report.files import Report, write_report


def make_report(
    folders: Sequence[str | Path],
    output: str | Path | None = None,
    title: str | None = None,
    note: str = "",
) -> Report:
    """Writes report.html, report.md, tables/*.csv and figures/*.png and .svg of studies.

    A study need not be finished; missing cells are shown as missing. The same rows give the same
    page, byte for byte.

    Args:
        folders: of studies, as written by `clew study` and `run_study`, or their names in runs/;
            each becomes a section.
        output: folder to write to; by default `report` in the first folder.
        title: of the page; by default the names of the studies.
        note: further information for the reader, for example the machine.

    Raises:
        UserError: if there is no such folder, it has no study, no finished cell or a damaged line,
            or the output cannot be written.
    """
    if not folders:
        raise UserError("give at least one folder of a study")
    studies = _distinct([read_study(folder) for folder in folders])
    styles = styles_of(model for data in studies for model in data.models)
    blocks = document(studies, styles, note)
    heading = title or ", ".join(data.name for data in studies)
    place = Path(output) if output else studies[0].folder / "report"
    return write_report(place, heading, blocks, styles, "clew report")


def _distinct(studies: list[StudyData]) -> list[StudyData]:
    """The studies with distinct file names, even if two studies have the same name."""
    seen: dict[str, int] = {}
    distinct = []
    for data in studies:
        seen[data.slug] = count = seen.get(data.slug, 0) + 1
        slug = data.slug if count == 1 else f"{data.slug}-{count}"
        distinct.append(replace(data, slug=slug))
    return distinct


def document(studies: Sequence[StudyData], styles: Styles, note: str) -> list[Block]:
    """All blocks of a report, folder by folder, without None and without empty charts.

    Raises:
        UserError: for folders whose reports have different forms.
    """
    if len({data.page.form for data in studies}) > 1:
        form = next(data.page.form for data in studies if data.page.form)
        raise UserError(f"{form} has its own form of report: give only its folders")
    blocks: list[Block | None] = []
    for data in studies:
        blocks += (data.page.blocks or general_blocks)(data, styles, note)
    there = [block for block in blocks if block is not None]
    return [block for block in there if not isinstance(block, Chart) or block.panels]


def general_blocks(data: StudyData, styles: Styles, note: str) -> list[Block | None]:
    """The blocks of a folder in the form that suits any study."""
    data, others = _of_one_budget(data)
    blocks: list[Block | None] = [
        Heading(data.name, 1, data.slug),
        _numbers(data),
        *(Text(sentence) for sentence in (*_sentences(data), *others)),
        summary(data),
    ]
    judged = data.publication.claims(data) if data.publication.claims else []
    if judged:
        blocks += [data.heading("Claims", "claims-section"), *judged]
    for part in data.parts:
        blocks += [
            data.heading(title_of(data, part), f"{part}-section"),
            charts.scores(data, part, styles),
            results(data, part),
            floors(data, part),
        ]
    if many := with_many_seeds(data):
        blocks += [
            data.heading("Many seeds", "seeds-section"),
            charts.many_seeds(data, many, styles),
            published_tests(data, many),
            *(pairs(data, setting) for setting in many),
        ]
    blocks += [
        data.heading("Outcomes", "outcomes-section"),
        charts.outcomes(data, styles),
        aggregates(data),
        charts.profiles(data, styles),
        data.heading("Training and seeds", "training-section"),
        charts.learning(data, styles),
        charts.ranks(data, many, styles),
        data.heading("Cost", "cost-section"),
        costs(data),
        charts.cost(data, styles, rates(data)),
        data.heading("How this was made", "made-section"),
        provenance(data, note),
    ]
    return blocks


def _of_one_budget(data: StudyData) -> tuple[StudyData, list[str]]:
    """The rows of the budget that most of a model's rows in a setting have; and what is not shown.

    A study's steps may be raised, and the folder then has rows of both budgets. Of two equally
    frequent budgets the larger one is shown.
    """
    counts = Counter((row["model"], row["setting"], row["steps"]) for row in data.rows)
    budgets: dict[tuple[str, str], int] = {}
    for model, setting, steps in sorted(counts, key=lambda key: (counts[key], key[2])):
        budgets[model, setting] = steps
    rows = [r for r in data.rows if r["steps"] == budgets[r["model"], r["setting"]]]
    shown = replace(data, rows=rows, cells=cells_of(rows))
    sentences = data.not_shown(shown)
    for setting in dict.fromkeys(setting for _, setting in budgets):
        own = [steps for (_, of), steps in budgets.items() if of == setting]
        if max(own) > 1.1 * min(own):  # not only rounded to a model's own rollouts
            sentences.append(
                f"Models were trained for different numbers of steps in {setting}: {min(own):,} to "
                f"{max(own):,}."
            )
    return shown, sentences


def _numbers(data: StudyData) -> Numbers:
    seconds = sum(row["seconds"] for row in data.rows)
    kinds = {"model": data.models, "setting": data.settings, "seed": data.seeds}
    sizes = [counted(len(names), noun).split() for noun, names in kinds.items()]
    pairs = [
        (f"{data.there:,} of {data.wanted:,}", "cells finished"),
        *((count, noun) for count, noun in sizes),
        (duration(seconds), f"of {data.machine}"),
    ]
    if data.published:
        tests, marked, _ = _counts(data)
        pairs.append((f"{marked} of {tests}", "published cells differ beyond noise"))
    return Numbers(pairs)


def _what_lacks(data: StudyData) -> list[str]:
    """Sentences about cells without a row or a score, and about impossible floors."""
    sentences = []
    missing = {
        model: len(data.settings) * len(data.seeds)
        - sum(len(data.cells.get((model, name), {})) for name in data.settings)
        for model in data.models
    }
    lacking = [f"{model} {count:,}" for model, count in missing.items() if count]
    if lacking:
        sentences.append(
            f"The study is not finished. Missing cells: {listed(lacking)}. They are shown as "
            "missing, and means are over the finished cells."
        )
    if data.failed:
        sentences.append(
            f"Training failed, so there is no score, for {_failed_text(data.failed)} "
            f"({FAILURES} says why). Means without them may flatter a model."
        )
    unscored = Counter(row["model"] for row in data.rows if row["mean"] is None)
    if unscored:
        named = listed([f"{model} {count:,}" for model, count in unscored.items()])
        sentences.append(f"Trainings that ended without a score and are in no mean: {named}.")
    return sentences + [info.doubt for info in data.settings.values() if info.doubt]


def _sentences(data: StudyData) -> list[str]:
    sentences = _what_lacks(data)
    budget, published = data.study.get("episodes"), data.publication.episodes
    if budget and published and budget != published:
        sentences.append(
            f"Agents were trained for {counted(budget, 'episode')}, the published ones for "
            f"{published:,}. This alone may explain differences from published numbers."
        )
    if len(data.seeds) == 1:
        sentences.append(
            "There is one seed, so there are no deviations, no intervals and no tests."
        )
    sentences += [_best(data, part) for part in data.parts]
    if data.published and len(data.seeds) > 1:
        tests, marked, alone = _counts(data)
        sentences.append(
            f"Cells that differ from their published counterpart by more than noise, after Holm's "
            f"correction over their table ({DIFFERS}): {marked} of {tests}. Cells with p at most "
            f"{ALPHA} before the correction: {alone}, where chance alone would give about "
            f"{ALPHA * tests:.0f}."
        )
    return sentences


def _failed_text(failed: Sequence[Cell]) -> str:
    seeds: dict[str, list[int]] = {}
    for cell in failed:
        seeds.setdefault(f"{cell.model} on {cell.setting}", []).append(cell.seed)
    return listed(
        [
            f"{one} with {'seed' if len(of) == 1 else 'seeds'} {listed([str(n) for n in of])}"
            for one, of in seeds.items()
        ]
    )


def _counts(data: StudyData) -> tuple[int, int, int]:
    """Number of tests against published cells, of marked ones, and of those with a small
    uncorrected p."""
    found = [
        entry
        for part in data.parts
        for entry in beside_published(data, data.of_part(part)).values()
    ]
    marked = sum(entry.mark == DIFFERS for entry in found)
    return len(found), marked, sum(entry.test.p <= ALPHA for entry in found)


def _best(data: StudyData, part: str) -> str:
    """The best model of a part, here and as published, over the settings that all models have."""
    wanted, title = data.averaged(part), title_of(data, part)
    models, shared = [m for m in data.models if data.begun(m, wanted)], data.shared(wanted)
    if not models:
        begun = any(setting in data.of_part(part) for _, setting in data.cells)
        return f"{title}: {'no training has a score' if begun else 'no cell is finished yet'}."
    if not shared:
        return f"{title}: the models have no setting in common yet."
    of = f"{len(shared)} of " if len(shared) < len(wanted) else ""
    over = f"over {of}{counted(len(wanted), 'setting')}"
    if len(wanted) < len(data.of_part(part)):
        over += f" that need{'s' if len(wanted) == 1 else ''} a memory"
    if len(shared) < len(wanted):
        over += ", those in which all models have a score"
    text = f"{title}: {_best_here(data, models, shared, over)}"
    published = {
        m: sum(data.published[m, s].mean for s in shared) / len(shared)
        for m in models
        if all((m, s) in data.published for s in shared)
    }
    if not published:
        return f"{text}."
    first, mean = _highest(published)
    return f"{text}; among the published it is {listed(first)}, {mean:.3f}."


def _best_here(data: StudyData, models: Sequence[str], settings: Sequence[str], over: str) -> str:
    """The best model, unless some models lack seeds that are in the means of others."""
    few = {m: text for m in models if (text := some_seeds(data, m, settings))}
    seeds = [[data.scored(model, name) for name in settings] for model in models]
    if any(own != seeds[0] for own in seeds):
        lacking = listed([f"{model} has {text}" for model, text in few.items()])
        return f"no best model is named {over}, as means are over different seeds: {lacking}"
    means = {model: mean_score(data, model, settings) for model in models}
    best, mean = _highest(means)
    have = "has" if len(best) == 1 else "have"
    text = f"{listed(best)} {have} the highest mean {score_label(data)}, {mean:.3f} {over}"
    if len(models) == 1:
        text = f"only {models[0]} has scores, a mean {score_label(data)} of {mean:.3f} {over}"
    return f"{text}, with {few[best[0]]}" if few else text


def _highest(means: Mapping[str, float]) -> tuple[list[str], float]:
    """The models with the highest mean, and that mean."""
    highest = max(means.values())
    return [model for model, mean in means.items() if highest - mean <= EXACT], highest
