"""A study's folder as read for a report: the grid, its scores, floors and published numbers."""

import math
import pkgutil
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from clew.errors import UserError, counted, one_line, unknown_name
from clew.files import read_json
from clew.lab.grid import Setting
from clew.lab.grid.results import FORMAT, RESULTS, STUDY, cell_of, failed_cells
from clew.lab.grid.study import Cell, Study
from clew.lab.studies import STUDIES, find_study
from clew.lab.studies.published import added_memories
from clew.report.document import Block, Heading
from clew.run import json_lines
from clew.run.json_lines import Line, Row
from clew.stats import Spread, mean_and_deviation

if TYPE_CHECKING:
    from clew.report.figures import Styles

NEEDED: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "model": ("text", (str,)),
    "setting": ("text", (str,)),
    "seed": ("an integer", (int,)),
    "mean": ("a finite number or null", (float, int, NoneType)),
    "score": ("text", (str,)),
    "curve": ("an object of lists", (dict,)),
    "steps": ("an integer", (int,)),
    "seconds": ("a finite number", (float, int)),
    "parameters": ("an integer", (int,)),
}
"""The required keys of every row, and the types of their values."""
NEEDLESS = 0.9
"""A setting does not need a memory if a policy without one earns this share of a perfect score."""
NEED_A_MEMORY = ("majority", "step number")
"""Floors that are only shown: they take a memory, if only to count the steps."""
SEEDS = 3
"""Assumed number of seeds for published numbers that do not state it."""


def best_floor(floors: Mapping[str, float]) -> float | None:
    """The best of the floors that need no memory; None if there is none."""
    plain = {name: value for name, value in floors.items() if name not in NEED_A_MEMORY}
    return max((abs(v) if name == "constant" else v for name, v in plain.items()), default=None)


class SettingInfo(NamedTuple):
    """One form of the task, as shown in the report."""

    name: str
    label: str
    part: str
    floors: Mapping[str, float]
    perfect: float = 1.0
    """The best possible score."""
    doubt: str = ""
    """Why its floors were left out, as a sentence."""

    @property
    def floor(self) -> float | None:
        """The best score without a memory; None if no floor is known.

        "constant" is always the same answer, and the opposite answer earns the opposite.
        """
        return best_floor(self.floors)

    @property
    def needless(self) -> bool:
        """Whether the setting can be solved without a memory."""
        least = min(NEEDLESS * self.perfect, self.perfect)  # which may be negative
        return self.floor is not None and self.floor >= least


class Part(NamedTuple):
    """One of the experiments of a publication."""

    title: str
    axis: str
    """The quantity in which its settings differ."""
    table: str
    """The publication's table with its numbers."""


class PublishedTest(NamedTuple):
    """A test of two models that a publication reports."""

    setting: str
    first: str
    second: str
    p: float


@dataclass(frozen=True)
class Publication:
    """What the general report shows about a publication, in addition to study.json."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Every setting in order, with its floors; a command may have run only a few."""
    part_of: Callable[[str], str] = lambda setting: "all"
    """The experiment of a setting."""
    label_of: Callable[[str], str] = str
    """A setting's label in the publication's tables."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    """Its names for models."""
    best: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By setting, a score that is known to be reached and an upper bound; scores are not normalised
    to them."""
    expected: Mapping[tuple[str, str], Spread] | None = None
    """Scores by (model, setting), also for a repaired grid, which expects none; None for those of
    study.json."""
    episodes: int | None = None
    """Number of episodes of a training."""
    many_seeds: Sequence[str] = ()
    """Settings that it reports with many seeds."""
    many_seeds_note: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    parameters_table: str = ""
    printed_mean: Callable[[str, str], float | None] = lambda part, model: None
    """The mean printed in a summary for a part and a model."""
    summary_table: str = ""
    """The table of those means."""
    summary_note: str = ""
    tests: Sequence[PublishedTest] = ()
    tests_note: str = ""
    claims: "Callable[[StudyData], list[Block]] | None" = None
    """The blocks on its claims; none if the folder has too few seeds."""


@dataclass(frozen=True)
class Page:
    """How a report shows the folders of a study."""

    command: "Callable[[StudyData], str]"
    """The command that made the folder, the latest if there were several."""
    publication: Publication = field(default_factory=Publication)
    form: str = ""
    """The name of the report's own form, if it has one; such folders cannot be mixed with
    others."""
    blocks: "Callable[[StudyData, Styles, str], Sequence[Block | None]] | None" = None
    """The blocks of such a folder in its own form; the last argument is the user's note."""


def command_of(data: "StudyData", words: str, whole: Study) -> str:
    """The command that makes the folder of a published study, without machine-specific options.

    Args:
        words: the study's name and its own options.
        whole: its grid without the options of every study.
    """
    made, options = data.study, dict[str, Any]()
    for kind, known in (("models", whole.models), ("settings", whole.settings)):
        kept = [name for name in known if name in made[kind]]
        if kept and len(kept) < len(known):
            options[kind] = ",".join(kept)
    if list(whole.seeds) != made["seeds"]:
        options["seeds"] = len(made["seeds"])
    for kind, own in (("steps", whole.steps), ("episodes", whole.episodes)):
        if made.get(kind) not in (None, own):
            options[kind] = made[kind]
    played = made.get("evaluation", {}).get("episodes", whole.evaluation.episodes)
    if played != whole.evaluation.episodes:
        options["evaluation-episodes"] = played
    given = "".join(f" --{name} {shlex.quote(str(value))}" for name, value in options.items())
    folder = shlex.quote(str(data.folder))
    return f"clew study {words}{given}{added_memories(made)} --run-dir {folder}"


def page_of(name: str) -> Page:
    """How the study with a grid called `name` is shown; by default in the general form."""
    for study in STUDIES:
        pages = find_study(study).pages
        page = pkgutil.resolve_name(pages)(name) if pages else None
        if page is not None:
            return page
    return Page(lambda data: "clew.lab.grid.run_study, with a study of your own")


@dataclass(frozen=True)
class StudyData:
    """The contents of a study's folder."""

    folder: Path
    name: str
    """The study's own name."""
    slug: str
    """The name in a form for file names."""
    study: Mapping[str, Any]
    """Its study.json."""
    rows: Sequence[Row]
    models: Sequence[str]
    """Models of the latest command, then those that only the rows have."""
    settings: Mapping[str, SettingInfo]
    seeds: Sequence[int]
    published: Mapping[tuple[str, str], Spread]
    """Published scores by (model, setting)."""
    cells: Mapping[tuple[str, str], Mapping[int, Row]]
    """By (model, setting), the row of each available seed."""
    failed: Sequence[Cell]
    """Cells that could not be trained, and have had no row since."""
    page: Page

    def heading(self, text: str, name: str) -> Heading:
        """The heading of a section."""
        return Heading(text, 2, f"{self.slug}-{name}")

    @property
    def publication(self) -> Publication:
        """What is known about the publication."""
        return self.page.publication

    @property
    def machine(self) -> str:
        """The machine whose seconds the rows count."""
        return "the whole machine" if self.study.get("whole_machine") else "one core"

    def of_one_budget(self) -> "StudyData":
        """The rows of the most frequent budget; of the larger one if two are equally frequent."""
        counts = Counter(row["steps"] for row in self.rows)
        steps = max(counts, key=lambda steps: (counts[steps], steps))
        rows = [row for row in self.rows if row["steps"] == steps]
        return replace(self, rows=rows, cells=cells_of(rows))

    def not_shown(self, shown: "StudyData") -> list[str]:
        """A sentence for each budget with rows that are not in `shown`."""
        counts = Counter(row["steps"] for row in self.rows)
        counts.subtract(row["steps"] for row in shown.rows)
        return [
            f"{counted(count, 'row')} of another budget ({steps:,} steps) "
            f"{'is' if count == 1 else 'are'} not shown."
            for steps, count in sorted(counts.items())
            if count
        ]

    @property
    def parts(self) -> list[str]:
        """The experiments, in order."""
        return list(dict.fromkeys(info.part for info in self.settings.values()))

    @property
    def wanted(self) -> int:
        """Number of cells of the grid."""
        return len(self.models) * len(self.settings) * len(self.seeds)

    @property
    def there(self) -> int:
        """Number of cells with a row."""
        return sum(len(found) for found in self.cells.values())

    @property
    def parts_with_rows(self) -> list[str]:
        """The experiments with at least one cell."""
        begun = {setting for _, setting in self.cells}
        return [part for part in self.parts if begun & set(self.of_part(part))]

    def rows_of(self, model: str) -> list[Row]:
        """Every row of a model."""
        return [row for row in self.rows if row["model"] == model]

    def of_part(self, part: str) -> list[str]:
        """The names of an experiment's settings."""
        return [name for name, info in self.settings.items() if info.part == part]

    def scored(self, model: str, setting: str) -> list[int]:
        """The seeds that have a row with a score, in order."""
        found = self.cells.get((model, setting), {})
        return [seed for seed in sorted(found) if found[seed]["mean"] is not None]

    def values(self, model: str, setting: str) -> Float[np.ndarray, " seeds"]:
        """The scores of the `scored` seeds, in the order of their numbers."""
        seeds = self.scored(model, setting)
        return np.array([self.cells[model, setting][n]["mean"] for n in seeds], np.float64)

    @property
    def means(self) -> list[float]:
        """The scores of all rows that have one."""
        return [row["mean"] for row in self.rows if row["mean"] is not None]

    def spread(self, model: str, setting: str) -> Spread | None:
        """Mean and deviation over seeds; None with fewer than two."""
        values = self.values(model, setting)
        return mean_and_deviation(values) if values.size > 1 else None

    def begun(self, model: str, settings: Iterable[str]) -> list[str]:
        """The settings in which a model has a score."""
        return [name for name in settings if self.values(model, name).size]

    def shared(self, settings: Sequence[str]) -> list[str]:
        """The settings in which all models with a score in any of them have one."""
        begun = [names for model in self.models if (names := self.begun(model, settings))]
        return [name for name in settings if begun and all(name in names for names in begun)]

    def table(
        self, model: str, settings: Iterable[str], *, normalised: bool = False
    ) -> Float[np.ndarray, "seeds settings"]:
        """The scores in the settings in which a model is `begun`, with equally many seeds of each.

        These are the first seeds of each setting, as many as the model has in every one.

        Args:
            settings: names; with `normalised`, all must have a floor below `NEEDLESS`.
            normalised: whether to scale scores so that 0 is the setting's floor and 1 a perfect
                score.
        """
        names = self.begun(model, settings)
        columns = [self.values(model, name) for name in names]
        fewest = min((column.size for column in columns), default=0)
        columns = [column[:fewest] for column in columns]
        if normalised:
            columns = [self.normalised(name, c) for name, c in zip(names, columns, strict=True)]
        return np.stack(columns, axis=1) if columns else np.zeros((0, 0))

    def normalised(self, setting: str, values: Any) -> Any:
        """Scores with 0 at the setting's floor and 1 at a perfect score."""
        info = self.settings[setting]
        assert info.floor is not None
        return (values - info.floor) / (info.perfect - info.floor)

    def averaged(self, part: str) -> list[str]:
        """The settings of a part over which its means are taken: those that need a memory.

        Beside published means, or if no setting needs one, all settings.
        """
        names = self.of_part(part)
        asking = [name for name in names if not self.settings[name].needless]
        return names if self.published or not asking else asking

    @property
    def leaves_out(self) -> bool:
        """Whether means leave out some settings."""
        return any(len(self.averaged(part)) < len(self.of_part(part)) for part in self.parts)

    def in_need(self, part: str) -> list[str]:
        """The settings of a part that have a floor and need a memory."""
        infos = (self.settings[name] for name in self.of_part(part))
        return [info.name for info in infos if info.floor is not None and not info.needless]


def read_study(folder: str | Path) -> StudyData:
    """Reads a study's folder, finished or not; nothing in it is changed.

    Args:
        folder: its path, or its name in runs/.

    Raises:
        UserError: if there is no such folder, it has no study or no finished cell, or a row is not
            of the study.
    """
    path = _find(Path(folder))
    study, lines = _read_study(path / STUDY), json_lines.read(path / RESULTS)
    if not lines:
        raise UserError(f"{path} has no finished cell yet; clew study appends them to {RESULTS}")
    for line in lines:
        _check_row(line.row, path / RESULTS, line.number)
    rows, name = _rows(lines, path / RESULTS), study["name"]
    cells = cells_of(rows)
    page = page_of(name)
    models = list(dict.fromkeys([*study["models"], *(row["model"] for row in rows)]))
    published = page.publication.expected
    if published is None:
        published = {(m, s): Spread(mean, std, SEEDS) for m, s, mean, std in study["expected"]}
    infos = _settings(page.publication, study["settings"], [row["setting"] for row in rows])
    return StudyData(
        folder=path,
        name=name,
        slug="".join(c if c.isalnum() else "-" for c in name).strip("-") or "study",
        study=study,
        rows=rows,
        models=models,
        settings={setting: _doubted(info, rows) for setting, info in infos.items()},
        seeds=sorted({*study["seeds"], *(row["seed"] for row in rows)}),
        published=published,
        cells=cells,
        failed=[c for c in failed_cells(path) if c.seed not in cells.get((c.model, c.setting), {})],
        page=page,
    )


def _rows(lines: Sequence[Line], path: Path) -> list[Row]:
    """The first row of every cell and budget, from which a study continues.

    Raises:
        UserError: if rows have different score metrics, or a model's rows in a setting have
            different training settings.
    """
    score = lines[0].row["score"]
    rows: dict[tuple[Any, ...], Row] = {}
    digests: dict[tuple[Any, ...], Any] = {}
    for line in lines:
        row = line.row
        if row["score"] != score:
            raise UserError(
                f"{path}, line {line.number}: its score is {row['score']!r}, and {score!r} in the "
                "rows before; means over both would be of neither"
            )
        rows.setdefault((*cell_of(row), row["steps"]), row)
        pair = row["model"], row["setting"], row["steps"]
        digest = digests.setdefault(pair, row.get("digest"))
        if digest != row.get("digest"):
            raise UserError(
                f"{path}, line {line.number}: {row['model']} on {row['setting']} was trained with "
                f"other settings ({row.get('digest')}) than in a row before ({digest}); means over "
                "both would be of neither"
            )
    return list(rows.values())


def cells_of(rows: Sequence[Row]) -> dict[tuple[str, str], dict[int, Row]]:
    """Rows by model and setting, and then by seed."""
    cells: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["setting"]), {})[row["seed"]] = row
    return cells


def _find(folder: Path) -> Path:
    runs = Path("runs")
    for candidate in (folder, runs / folder):
        if (candidate / STUDY).is_file():
            return candidate
    if folder.is_dir():
        raise UserError(f"{folder} has no {STUDY}: not a study's folder (clew study makes one)")
    near = {place for place in (folder.parent, runs) if place.is_dir()}
    known = [str(file.parent) for place in sorted(near) for file in place.glob(f"*/{STUDY}")]
    raise unknown_name("study's folder", str(folder), known)


def _read_study(path: Path) -> dict[str, Any]:
    study = read_json(path)
    if study.get("format", FORMAT) != FORMAT:
        raise UserError(f"{path} was written by a newer clew")
    for key in ("format", "name", "models", "settings", "seeds", "expected"):
        if key not in study:
            raise UserError(f"{path} has no {key!r}: it is not what clew study writes")
    return study


def _check_row(row: Row, path: Path, number: int) -> None:
    for key, (expected, kinds) in NEEDED.items():
        if key not in row:
            raise UserError(f"{path}: line {number} has no {key!r}: it is not a row of a study")
        value = row[key]
        if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
            raise UserError(
                f"{path}: line {number}: {key!r} must be {expected}, got {one_line(value)}"
            )
    for key in ("steps", "episodes", row["score"]):
        points = row["curve"].get(key)
        if not isinstance(points, list) or not points:
            raise UserError(f"{path}: line {number}: its 'curve' has no list of {key!r}")


def _settings(
    publication: Publication, given: Mapping[str, Any], used: Sequence[str]
) -> dict[str, SettingInfo]:
    """The settings of the latest command and of earlier rows, the publication's first and in its
    order."""
    names, known = list(dict.fromkeys([*given, *used])), publication.settings
    found = {}
    for n in [n for n in known if n in names] + [n for n in names if n not in known]:
        published, own = known.get(n, Setting("")), given.get(n)
        floors = (own or {}).get("floors") or published.floors
        perfect = published.perfect if own is None else own.get("perfect", 1.0)
        label, part = publication.label_of(n), publication.part_of(n)
        found[n] = SettingInfo(n, label, part, floors, perfect)
    return found


def _doubted(info: SettingInfo, rows: Sequence[Row]) -> SettingInfo:
    """A setting without its floors, and why, if its perfect score is exceeded."""
    scores = [r["mean"] for r in rows if r["setting"] == info.name and r["mean"] is not None]
    for what, value in (("the floor", info.floor), ("a score", max(scores, default=None))):
        rounding = 1e-6 * max(1.0, abs(info.perfect))
        if info.floors and value is not None and value > info.perfect + rounding:
            doubt = (
                f"{info.label}: {what} of {value:g} is above the perfect score, {info.perfect:g}, "
                "so its floors are left out; say what is perfect, as Setting(perfect=...)."
            )
            return info._replace(floors={}, doubt=doubt)
    return info
