"""The tables of scores: by part, by setting beside published ones, and beside floors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clew.lab.studies.report.comparisons import (
    ALPHA,
    DIFFERS,
    LEGEND,
    Compared,
    beside_published,
    difference_text,
    mean_difference,
)
from clew.lab.studies.report.data import NEEDLESS, SettingInfo, StudyData
from clew.lab.studies.report.means import lacks, mean_interval
from clew.report.curves import LABELS
from clew.report.document import Cell, Column, Table, counted, tabulate
from clew.stats import (
    Interval,
    bootstrap_interval,
    interquartile_mean,
    mean_of_tasks,
    optimality_gap,
    probability_of_improvement,
    stratified_interval,
)

MISSING = Cell("–")
FEW = 5
"""Number of seeds below which a test detects next to nothing."""
EXACT = 5e-7
"""Tolerance for equal scores: rows have six digits."""
SAME = "≡"
AGGREGATES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": mean_of_tasks,
    "interquartile mean": interquartile_mean,
    "gap to perfect": optimality_gap,
}
BETTER = "better than others"

FLOORS = {
    "constant": "always the same answer (the opposite answer earns the opposite return)",
    "memoryless": "the best policy without memory",
    "step number": "the best policy without memory that sees the number of the step",
    "majority": "the more frequent value of the bits, whichever bit is asked for",
    "random": "random actions",
    "carried": "the previous action carries what has to be remembered",
}
"""The meaning of the names of floors."""


def title_of(data: StudyData, part: str) -> str:
    """The name of a part."""
    if part in data.publication.parts:
        return data.publication.parts[part].title
    return "All settings" if part == "all" else part


def axis_of(data: StudyData, part: str) -> str:
    """The quantity in which the settings of a part differ."""
    known = data.publication.parts
    return known[part].axis if part in known else "setting"


def score_label(data: StudyData) -> str:
    """The label of scores for an axis."""
    score = str(data.rows[0]["score"])
    return LABELS.get(score, score) if score != "return" else score


def _title(data: StudyData, model: str) -> str:
    """The published name of a model if it differs, otherwise empty."""
    title = data.publication.titles.get(model, "")
    return "" if title.lower() == model.lower() else title


def model_cell(data: StudyData, model: str) -> Cell:
    """The head of a model's row, with its published name below."""
    title = _title(data, model)
    return Cell(model, (title,) if title else ())


def _model_columns(data: StudyData) -> list[Column]:
    return [Column(model, _title(data, model)) for model in data.models]


def _setting_cell(info: SettingInfo) -> Cell:
    return Cell(info.label, ("memory not needed",) if info.needless else ())


def summary(data: StudyData) -> Table:
    """Mean over the settings of each part."""
    columns = ["model", *(title_of(data, part) for part in data.parts)]
    rows, records = [], []
    for model in data.models:
        found = [_mean_of_part(data, model, part) for part in data.parts]
        rows.append([model_cell(data, model), *(cell for cell, _ in found)])
        records += [record for _, record in found if record]
    note = (
        "First line: the mean over the settings of the part, with its 95% bootstrap interval over "
        "seeds, stratified by setting. One seed has no interval, and the interval of three is too "
        "narrow."
    )
    if any(_lacks_some(data, record) for record in records):
        note += (
            " Each setting has the same weight, whatever its number of seeds. A mean over fewer "
            "seeds or settings says so; it does not cover what the others cover."
        )
    if data.leaves_out:
        note += " Settings that need no memory are left out."
    if data.published:
        note += (
            " Below it: the mean of the published table over the same settings, then the "
            "difference with the 95% interval of Welch's test for such means. "
            f"{DIFFERS} marks p at most {ALPHA}."
        )
    whole = any(_whole(data, part) for part in data.parts)
    known, title = data.publication, "Mean over the settings of this study"
    if whole:
        note += f" {known.summary_note}"
        title = f"Mean over all settings, as in {known.summary_table}"
    return tabulate(f"{data.slug}-summary", title, columns, rows, note, records)


def _mean_of_part(data: StudyData, model: str, part: str) -> tuple[Cell, dict[str, Any]]:
    wanted = data.averaged(part)
    names = data.begun(model, wanted)
    if not names:
        return MISSING, {}
    mean = mean_interval(data, model, names)
    expected = [data.published[model, n] for n in names if (model, n) in data.published]
    fewest = min(data.values(model, name).size for name in names)
    record = {"model": model, "part": part, "settings": len(names), "seeds": fewest}
    record |= mean._asdict()
    below, mark = list(lacks(data, model, names, wanted)), ""
    if len(expected) == len(names):
        published = sum(spread.mean for spread in expected) / len(expected)
        record["published"] = published
        below.append(f"published {published:.3f}")
        here = [spread for name in names if (spread := data.spread(model, name))]
        test = mean_difference(here, expected) if fewest > 1 else None
        if test is not None:
            record |= {f"difference_{key}": value for key, value in test._asdict().items()}
            below.append(difference_text(test))
            mark = DIFFERS if test.p <= ALPHA else ""
        whole = _whole(data, part) and len(names) == len(wanted)
        printed = data.publication.printed_mean(part, model) if whole else None
        if printed is not None and abs(printed - published) > 0.0015:
            below.append(f"{data.publication.summary_table}: {printed:.3f}")
    return Cell(f"{mean:.3f}", tuple(below), mark, shade(mean.mean)), record


def _lacks_some(data: StudyData, record: dict[str, Any]) -> bool:
    """Whether the mean of a record lacks settings or seeds."""
    wanted = data.averaged(record["part"])
    return record["settings"] < len(wanted) or record["seeds"] < len(data.seeds)


def _whole(data: StudyData, part: str) -> bool:
    """Whether a folder has every setting of the published mean of a part."""
    known = data.publication
    names = {name for _, name in data.published if known.part_of(name) == part}
    return bool(known.summary_table) and names <= set(data.settings)


def shade(score: float) -> float:
    """The shade of a score's background, where a score of 1 is perfect."""
    return min(max(score, 0.0), 1.0)


def results(data: StudyData, part: str) -> Table:
    """Every setting of a part: the score here, the published one, and the difference."""
    names = data.of_part(part)
    compared = beside_published(data, names)
    rows, records = [], []
    for name in names:
        cells = [_setting_cell(data.settings[name])]
        for model in data.models:
            cell, record = _result(data, model, name, compared.get((model, name)))
            cells.append(cell)
            records.append(record)
        rows.append(cells)
    title = title_of(data, part)
    if part in data.publication.parts:
        title = f"{title} beside {data.publication.parts[part].table}"
    columns = [axis_of(data, part), *_model_columns(data)]
    note = _note(data, names, compared)
    return tabulate(f"{data.slug}-{part}", title, columns, rows, note, records)


def _note(data: StudyData, names: Sequence[str], compared: dict[tuple[str, str], Compared]) -> str:
    if not any((model, name) in data.published for model in data.models for name in names):
        return (
            "Mean ± standard deviation over seeds, then the 95% bootstrap interval of the mean. "
            "One seed has neither; with fewer than 5 the interval is too narrow. Where seeds are "
            "missing, their number is given in brackets. A dash: no cell yet."
        )
    many = any(name in data.publication.many_seeds for name in names)
    thirty = f" ({data.publication.many_seeds_note})" if many else ""
    note = (
        "First line: mean ± standard deviation here, over "
        f"{counted(len(data.seeds), 'seed')} or the number in brackets. Second line: published, "
        f"over three seeds{thirty}. Third line: here minus published, with Welch's 95% interval. "
        "A dash: no cell yet. A missing mark does not mean that the numbers agree: see the "
        "intervals. "
    )
    if len(data.seeds) < FEW:
        note += "With so few seeds, only large differences with little spread can be marked. "
    if compared:
        alone = sum(entry.test.p <= ALPHA for entry in compared.values())
        marked = sum(entry.mark == DIFFERS for entry in compared.values())
        note += (
            f"{LEGEND} p at most {ALPHA} in {alone} of {counted(len(compared), 'test')} before the "
            f"correction, where chance alone would give about {ALPHA * len(compared):.0f}, and in "
            f"{marked} after it."
        )
    return note.strip()


def _result(
    data: StudyData, model: str, setting: str, compared: Compared | None
) -> tuple[Cell, dict[str, Any]]:
    """A score with the published one below, or with its interval if there is none."""
    values, spread = data.values(model, setting), data.spread(model, setting)
    published = data.published.get((model, setting))
    record: dict[str, Any] = {
        "setting": setting,
        "model": model,
        "seeds": values.size,
        "mean": values.mean() if values.size else None,
        "deviation": None if spread is None else spread.deviation,
        "published_mean": None if published is None else published.mean,
        "published_deviation": None if published is None else published.deviation,
        "published_seeds": None if published is None else published.seeds,
    }
    below, mark = [], ""
    if published is not None:
        below.append(f"{published.mean:.3f} ± {published.deviation:.3f}")
    elif spread is not None:
        alone = bootstrap_interval(values, resamples=2000)
        below.append(f"[{alone.low:.2f}, {alone.high:.2f}]")
        record |= {"mean_low": alone.low, "mean_high": alone.high}
    if compared is not None:
        test, mark = compared.test, compared.mark
        below.append(difference_text(test))
        record |= {"difference": test.difference, "low": test.low, "high": test.high}
        record |= {"p": test.p, "p_holm": compared.corrected, "mark": mark}
    if not values.size:
        return Cell(MISSING.text, tuple(below)), record
    text = f"{values[0]:.3f}" if spread is None else f"{spread}"
    if values.size < len(data.seeds):
        text += f" ({values.size})"
    return Cell(text, tuple(below), mark, shade(values.mean())), record


def floors(data: StudyData, part: str) -> Table | None:
    """The floors of every setting, and every model's mean normalised to the best floor; None if no
    setting has one."""
    names = data.of_part(part)
    known = list(dict.fromkeys(f for n in names for f in data.settings[n].floors))
    if not known:
        return None
    best = data.publication.best
    columns = [axis_of(data, part), *(Column(f, "floor") for f in known)]
    columns += [Column("best")] if best else []
    rows, records = [], []
    for name in names:
        info = data.settings[name]
        record: dict[str, Any] = {"setting": name, **{f: info.floors.get(f) for f in known}}
        cells = [_setting_cell(info)]
        cells += [Cell(f"{info.floors[f]:.2f}") if f in info.floors else MISSING for f in known]
        if best:
            low, high = best.get(name, (None, None))
            record |= {"best known": low, "best possible": high}
            cells.append(_between(low, high))
        for model in data.models:
            cell, value = _normalised(data, model, name)
            cells.append(cell)
            record[f"normalised {model}"] = value
        rows.append(cells)
        records.append(record)
    meant = "; ".join(f"{name}: {FLOORS[name]}" for name in known if name in FLOORS)
    note = (
        f"Floors are returns of fixed policies that do not solve the task; {meant}. Models: mean "
        "over seeds, normalised so that 0 is the best floor that needs no memory and 1 is "
        f"perfect. Settings in which that floor is {NEEDLESS} of a perfect score or more are not "
        f"normalised. {SAME}: every seed earns exactly what one of the floors earns, on the same "
        "episodes."
    )
    if best:
        note += " Best: the best possible return, or the best known one and an upper bound."
    title = f"{title_of(data, part)}: floors and normalised scores"
    columns += _model_columns(data)
    return tabulate(f"{data.slug}-{part}-floors", title, columns, rows, note, records, folded=True)


def _between(low: float | None, high: float | None) -> Cell:
    """Two scores, as one number if they look the same."""
    shown = dict.fromkeys(f"{score:.2f}" for score in (low, high) if score is not None)
    return Cell(" to ".join(shown)) if shown else MISSING


def _normalised(data: StudyData, model: str, setting: str) -> tuple[Cell, float | None]:
    info, values = data.settings[setting], data.values(model, setting)
    if info.floor is None or info.needless or not values.size:
        return MISSING, None
    value = float(data.normalised(setting, values).mean())
    mark = SAME if _is_a_floor(data, setting, values) else ""
    return Cell(f"{value:.2f}", (), mark, shade(value)), value


def _is_a_floor(data: StudyData, setting: str, values: np.ndarray) -> bool:
    """Whether every seed earned exactly one of the floors, on the same episodes."""
    if not data.study.get("evaluation", {}).get("stream"):
        return False
    floors = data.settings[setting].floors
    known = [sign * v for k, v in floors.items() for sign in ((1, -1) if k == "constant" else (1,))]
    return any(bool(np.all(np.abs(values - floor) < EXACT)) for floor in known)


def aggregates(data: StudyData) -> Table | None:
    """Normalised scores of each part in one number, in three ways; None without floors."""
    parts = [part for part in data.parts if data.in_need(part)]
    if not parts:
        return None
    ways = [*AGGREGATES, BETTER]
    heads = [Column(title_of(data, part), way) for part in parts for way in ways]
    rows, records = [], []
    for model in data.models:
        cells = [model_cell(data, model)]
        for part in parts:
            needed = data.in_need(part)
            scores = data.table(model, needed, normalised=True)
            found = {way: _aggregate(scores, of, way) for way, of in AGGREGATES.items()}
            found[BETTER] = _better(data, model, part)
            names = data.begun(model, needed)
            below = lacks(data, model, names, needed) if names else ()
            for way, (cell, record) in found.items():
                cells.append(cell._replace(below=(*cell.below, *below)) if record else cell)
                if record:
                    records.append({"model": model, "part": part, "aggregate": way, **record})
        rows.append(cells)
    note = (
        "Scores are normalised: 0 is the best floor that needs no memory, 1 is perfect, and a "
        "score below 0 is worse than that floor. Settings that need no memory are left out. The "
        "95% bootstrap intervals over seeds are stratified by setting, and too narrow for fewer "
        "than 5 seeds. The interquartile mean leaves out the worst and the best quarter of all "
        "trainings. Better than others: the probability that a training scores higher than one "
        "of another model in the same setting, among the models that have all of its settings. A "
        "model that lacks settings or seeds says so; the same number of seeds of each of its "
        "settings is used."
    )
    name = f"{data.slug}-normalised"
    return tabulate(name, "Normalised scores", ["model", *heads], rows, note, records)


def _aggregate(
    scores: np.ndarray, aggregate: Callable[[np.ndarray], np.ndarray], way: str
) -> tuple[Cell, dict[str, Any]]:
    if not scores.size:
        return MISSING, {}
    record: dict[str, Any] = {"seeds": scores.shape[0], "settings": scores.shape[1]}
    if scores.shape[0] == 1:
        value = float(aggregate(scores[None])[0])
        return Cell(f"{value:.2f}"), record | {"value": value}
    found = stratified_interval(scores, aggregate, resamples=2000)
    cell, values = _with_interval(found, None if way == "gap to perfect" else shade(found.mean))
    return cell, record | values


def _better(data: StudyData, model: str, part: str) -> tuple[Cell, dict[str, Any]]:
    """The probability that a model beats the others that have all of its settings."""
    names = data.begun(model, data.in_need(part))
    tables = {other: data.table(other, names) for other in data.models}
    own = tables.pop(model)
    others = [table for table in tables.values() if table.shape[1] == len(names) > 0]
    if own.shape[0] < 2 or sum(map(len, others)) < 2:
        return MISSING, {}
    found = probability_of_improvement(own, np.concatenate(others), resamples=2000)
    return _with_interval(found, shade(found.mean))


def _with_interval(found: Interval, tone: float | None) -> tuple[Cell, dict[str, Any]]:
    cell = Cell(f"{found.mean:.2f}", (f"[{found.low:.2f}, {found.high:.2f}]",), "", tone)
    return cell, {"value": found.mean, "low": found.low, "high": found.high}
