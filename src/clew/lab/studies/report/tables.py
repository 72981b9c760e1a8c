"""The tables of scores: the summary by part, and every setting beside the published one."""

import math
from collections.abc import Sequence
from typing import Any

from clew.lab.studies.report import thesis
from clew.lab.studies.report.compare import (
    ALPHA,
    DIFFERS,
    LEGEND,
    Compared,
    Difference,
    beside_published,
    interval_text,
    mean_difference,
    signed,
)
from clew.lab.studies.report.edition import PERFECT, Edition
from clew.lab.studies.report.words import axis_of, model_title, title_of
from clew.report.document import Cell, Column, Table, counted
from clew.stats import (
    Interval,
    Spread,
    bootstrap_interval,
    mean_of_tasks,
    stratified_interval,
)

MISSING = Cell("–")
FEW = 5
"""Seeds below which a test sees next to nothing."""


def head(edition: Edition, models: Sequence[str]) -> list[Column]:
    """Columns of models, with the thesis's names under ours."""
    return [Column(model, model_title(edition, model)) for model in models]


def summary(edition: Edition) -> Table:
    """Mean over the settings of each part (Table 4.1)."""
    columns = [Column("model"), *(Column(title_of(edition, part)) for part in edition.parts)]
    rows, records = [], []
    for model in edition.models:
        found = [_mean_of_part(edition, model, part) for part in edition.parts]
        name = Cell(model, (model_title(edition, model),) if model_title(edition, model) else ())
        rows.append([name, *(cell for cell, _ in found)])
        records += [record for _, record in found if record]
    note = (
        "The first line is our mean over the settings of the part with its 95% interval, from a "
        "bootstrap over seeds, stratified by setting; one seed gives none, and three give one "
        "that is too narrow."
    )
    if edition.published:
        note += (
            " Under it the mean of the published table over the same settings, then the "
            "difference with the 95% interval of Welch's test for such means. "
            f"{DIFFERS} marks p at most {ALPHA}."
        )
    whole = any(_whole(edition, part) for part in edition.parts)
    if whole:
        note += (
            " Table 4.1 itself prints other means of the length column than Table C.1 gives for "
            "four models; where they differ by more than rounding, its number stands last."
        )
    title = "Mean over all settings" + (", as in Table 4.1" if whole else " that are here")
    return Table(f"{edition.slug}-summary", title, columns, rows, note, records)


def _mean_of_part(edition: Edition, model: str, part: str) -> tuple[Cell, dict[str, Any]]:
    names = edition.complete(model, edition.of_part(part))
    if not names:
        return MISSING, {}
    scores = edition.table(model, names)
    told = [edition.published[model, n] for n in names if (model, n) in edition.published]
    if len(scores) > 1:
        mean = stratified_interval(scores, mean_of_tasks)
    else:
        mean = Interval(float(scores.mean()), math.nan, math.nan)
    record = {
        "model": model,
        "part": part,
        "settings": len(names),
        "seeds": len(scores),
        **mean._asdict(),
    }
    below, mark = [], ""
    if len(names) < len(edition.of_part(part)):
        below.append(f"{len(names)} of {len(edition.of_part(part))} settings")
    if len(told) == len(names):
        published = sum(spread.mean for spread in told) / len(told)
        record["published"] = published
        below.append(f"published {published:.3f}")
        test = _difference(edition, model, names, told) if len(scores) > 1 else None
        if test is not None:
            record |= {f"difference_{key}": value for key, value in test._asdict().items()}
            below.append(f"{signed(test.difference)} {interval_text(test.low, test.high)}")
            mark = DIFFERS if test.p <= ALPHA else ""
        whole = _whole(edition, part) and len(names) == len(edition.of_part(part))
        printed = thesis.table_4_1(part, model) if whole else None
        if printed is not None and abs(printed - published) > 0.0015:
            below.append(f"Table 4.1: {printed:.3f}")
    return Cell(f"{mean:.3f}", tuple(below), mark, shade(mean.mean)), record


def _whole(edition: Edition, part: str) -> bool:
    """Whether an edition has every setting that Table 4.1's mean of a part is over."""
    told = {name for _, name in edition.published if thesis.part_of(name) == part}
    return edition.thesis and told <= set(edition.settings)


def _difference(
    edition: Edition, model: str, names: Sequence[str], told: Sequence[Spread]
) -> Difference | None:
    ours = [edition.spread(model, name) for name in names]
    return mean_difference([spread for spread in ours if spread is not None], told)


def shade(score: float) -> float:
    """How dark a score's background is."""
    return min(max(score / PERFECT, 0.0), 1.0)


def results(edition: Edition, part: str) -> Table:
    """Every setting of a part: ours, what was published, and the difference."""
    names = edition.of_part(part)
    compared = beside_published(edition, names)
    rows, records = [], []
    for name in names:
        info = edition.settings[name]
        cells = [Cell(info.label, ("memory not needed",) if info.needless else ())]
        for model in edition.models:
            cells.append(_result(edition, model, name, compared.get((model, name))))
            records.append(_record(edition, model, name, compared.get((model, name))))
        rows.append(cells)
    title = title_of(edition, part)
    if edition.thesis and part in thesis.PARTS:
        title = f"{title} beside {thesis.PARTS[part].table}"
    columns = [Column(axis_of(edition, part)), *head(edition, edition.models)]
    note = _note(edition, names, compared)
    return Table(f"{edition.slug}-{part}", title, columns, rows, note, records)


def _note(edition: Edition, names: Sequence[str], compared: dict[tuple[str, str], Compared]) -> str:
    if not any((model, name) in edition.published for model in edition.models for name in names):
        return (
            "Mean ± standard deviation over seeds, then the 95% bootstrap interval of the mean; "
            "one seed has neither. In brackets how many seeds there are, where some are missing. "
            "A dash: no cell yet."
        )
    many = any(name in thesis.MANY for name in names) and edition.thesis
    thirty = " (thirty at lengths 20 and 70 and sizes 5 and 10)" if many else ""
    note = (
        f"First line: ours, mean ± standard deviation over {counted(len(edition.seeds), 'seed')}, "
        f"or as many as stand in brackets. Second: published, over three{thirty}. Third: ours "
        "minus published, with Welch's 95% interval. A dash: no cell yet. No mark means that "
        "nothing was shown, not that the numbers are the same: see the intervals. "
    )
    if len(edition.seeds) < FEW:
        note += "With so few seeds only a gulf between steady results can be marked. "
    if compared:
        alone = sum(entry.test.p <= ALPHA for entry in compared.values())
        marked = sum(entry.mark == DIFFERS for entry in compared.values())
        note += (
            f"{LEGEND} Of {counted(len(compared), 'test')} {alone} have p at most {ALPHA} by "
            f"themselves, where chance alone would give about {ALPHA * len(compared):.0f}; "
            f"{marked} stand the correction."
        )
    return note.strip()


def _result(edition: Edition, model: str, setting: str, compared: Compared | None) -> Cell:
    values, spread = edition.values(model, setting), edition.spread(model, setting)
    told = edition.published.get((model, setting))
    below = [] if told is None else [f"{told.mean:.3f} ± {told.deviation:.3f}"]
    if not values.size:
        return Cell(MISSING.text, tuple(below))
    text = f"{spread}" if spread is not None else f"{values[0]:.3f}"
    if values.size < len(edition.seeds):
        text += f" ({values.size})"
    if compared is not None:
        test = compared.test
        below.append(f"{signed(test.difference)} {interval_text(test.low, test.high)}".strip())
    elif spread is not None and told is None:
        mean = bootstrap_interval(values, resamples=2000)
        below.append(f"[{mean.low:.2f}, {mean.high:.2f}]")
    mark = compared.mark if compared is not None else ""
    return Cell(text, tuple(below), mark, shade(values.mean()))


def _record(
    edition: Edition, model: str, setting: str, compared: Compared | None
) -> dict[str, Any]:
    values, spread = edition.values(model, setting), edition.spread(model, setting)
    told = edition.published.get((model, setting))
    record: dict[str, Any] = {
        "setting": setting,
        "model": model,
        "seeds": values.size,
        "mean": values.mean() if values.size else None,
        "deviation": None if spread is None else spread.deviation,
        "published_mean": None if told is None else told.mean,
        "published_deviation": None if told is None else told.deviation,
        "published_seeds": None if told is None else told.seeds,
    }
    if compared is not None:
        test = compared.test
        record |= {"difference": test.difference, "low": test.low, "high": test.high}
        record |= {"p": test.p, "p_holm": compared.corrected, "mark": compared.mark}
    return record
