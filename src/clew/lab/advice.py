"""Which memory for which task, from the rows in `results/`: the data of `clew advise`.

The advice is in `advice.toml`, with one table for each kind of thing to remember, and in
`scores.csv`. `benchmarks.which_memory` writes the scores from the rows, and docs/which-memory.md.
Unknowns are marked as such.
"""

import csv
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError, unknown_name
from clew.files import with_tuples

USUAL = ("gru", "lstm", "none")
"""Memories that are shown beside the highest scores."""

SAME_TASK = (
    *("normalise_observations", "observation_clip", "normalise_rewards", "reward_gamma"),
    *("reward_scale", "reward_clip", "video_every", "video_folder", "metrics"),
)
"""Wrappers that do not change what a task asks for."""


class Need(NamedTuple):
    """One kind of thing that a task may ask an agent to remember."""

    word: str
    """Its name on the command line."""
    title: str
    asks: str
    """What such a task looks like."""
    tasks: tuple[str, ...]
    """Names of tasks of this kind, or their prefixes."""
    advice: str
    why: str
    """What was measured."""
    limits: str
    """What was not."""
    made: str
    """The learner, steps, seeds and agent size of the evidence; empty if there are no rows."""
    evidence: tuple[str, ...]
    """Folders of results/; none if there are no rows."""
    command: str
    """The task of these rows, or the nearest one available."""
    compare: tuple[str, ...]
    """Memories that are worth comparing on a task of your own."""
    words: tuple[str, ...] = ()
    """Options of `clew train` that such a task requires, each with its value."""
    settings: tuple[str, ...] = ()
    """Options of `clew train`, or single values of an option, that make any task one of this
    kind."""
    unless: tuple[str, ...] = ()
    """Options with which it is not of this kind."""
    also: tuple[str, ...] = ()
    """Synonyms."""
    far: bool = False
    """Whether it may have to be remembered over a whole episode."""


class Tried(NamedTuple):
    """One specific task on which agents were trained."""

    name: str
    env: str
    found: str
    """What was measured."""
    made: str
    """As in `Need`."""
    evidence: str
    """A folder of results/."""
    compare: tuple[str, ...]
    """Memories that are worth comparing there."""
    words: tuple[str, ...]
    """Options of `clew train` with which these agents were trained, each with its value."""
    options: Mapping[str, Any] = MappingProxyType({})
    """The task's options that define it."""
    wrappers: Mapping[str, Any] = MappingProxyType({})
    """The wrappers that define it."""


class Score(NamedTuple):
    """The score of a memory at its defaults where one kind of thing has to be remembered."""

    need: str
    """The need's word."""
    measured: str
    """What the score is."""
    rows: str
    """A folder of results/."""
    memory: str
    seeds: int
    mean: float
    low: float
    """Lower end of a 95% bootstrap interval over the seeds; NaN, as is `high`, for one seed."""
    high: float
    from_highest: str
    """Whether Welch's test with Holm's correction tells it apart from the highest mean at a level
    of 0.05: yes or no; empty where there is no test."""
    from_none: str
    """The same for an agent without memory."""


@cache
def recorded() -> dict[str, Any]:
    """The contents of `advice.toml`."""
    text = (resources.files("clew.lab") / "advice.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def needs() -> list[Need]:
    """All needs, those with evidence first."""
    return [Need(**with_tuples(one)) for one in recorded()["needs"]]


@cache
def scores() -> list[Score]:
    """All scores, sorted from the highest within each measure."""
    text = (resources.files("clew.lab") / "scores.csv").read_text(encoding="utf-8")
    return [_score(**row) for row in csv.DictReader(text.splitlines())]


def _score(seeds: str, mean: str, low: str, high: str, **words: str) -> Score:
    return Score(seeds=int(seeds), mean=float(mean), low=float(low), high=float(high), **words)


def measures_of(need: Need) -> list[list[Score]]:
    """The scores for a need, measure by measure."""
    found = [score for score in scores() if score.need == need.word]
    names = dict.fromkeys(score.measured for score in found)
    return [[score for score in found if score.measured == name] for name in names]


def ranking(measure: list[Score], best: int | None = None) -> str:
    """The means of one measure, and which are told apart from the highest and from no memory.

    Of those told apart and the rest, the smaller group is named; memories whose printed mean equals
    the highest, or that of no memory, are left out.

    Args:
        measure: the scores, highest first.
        best: the number of highest scores to print, besides those of `USUAL`, with counts in place
            of names; None for all.
    """
    shown = [s for i, s in enumerate(measure) if best is None or i < best or s.memory in USUAL]
    others = len(measure) - len(shown)
    ranks = "; ".join(f"{', '.join(names)} {mean}" for mean, names in _grouped(shown).items())
    ranks += f"; {others} others not listed" if others else ""
    found = {measure[0].memory: {score.memory: score.from_highest for score in measure}}
    found["none"] = {score.memory: score.from_none for score in measure}
    apart = filter(None, (_apart(measure, *one, names=not others) for one in found.items()))
    return " ".join([f"{measure[0].measured}, {seeds_of(measure)} seeds: {ranks}.", *apart])


def _grouped(measure: list[Score]) -> dict[str, list[str]]:
    """Each printed mean and its memories."""
    groups: dict[str, list[str]] = {}
    for score in measure:
        groups.setdefault(f"{score.mean:.2f}", []).append(score.memory)
    return groups


def _apart(measure: list[Score], other: str, answers: dict[str, str], *, names: bool) -> str:
    """Which memories are told apart from another, by names or by their number; may be empty."""
    same = next((group for group in _grouped(measure).values() if other in group), [])
    apart = [name for name, answer in answers.items() if answer == "yes"]
    near = [name for name, answer in answers.items() if answer == "no" and name not in same]
    if not near:
        return ""
    if not apart:
        return f"No memory is told apart from {other}."
    if not names:
        return f"{len(apart)} of {len(measure) - 1} others are told apart from {other}."
    if len(near) <= len(apart):
        return f"Not told apart from {other}: {', '.join(near)}."
    return f"Told apart from {other}: {', '.join(apart)}."


def seeds_of(measure: list[Score]) -> str:
    """The number of seeds, as a range if it varies."""
    counts = sorted({score.seeds for score in measure})
    return f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"


def tried() -> list[Tried]:
    """All tasks on which agents were trained."""
    return [_tried(**one) for one in recorded()["tasks"]]


def _tried(wrappers: dict[str, Any] | None = None, **written: Any) -> Tried:
    return Tried(**with_tuples(written), wrappers=with_tuples(wrappers or {}))


def tried_on(
    env: str, options: Mapping[str, Any], wrappers: WrapperConfig, defaults: Mapping[str, Any]
) -> tuple[list[Tried], list[Tried]]:
    """What was tried on this task, and on it with other options; `defaults` are the task's."""
    changed = {name: value for name, value in wrappers.changed.items() if name not in SAME_TASK}
    alike = [one for one in tried() if one.env == env and dict(one.wrappers) == changed]
    whole = {**defaults, **options}
    very = [one for one in alike if {**defaults, **one.options} == whole]
    return very, [one for one in alike if one not in very]


def need(word: str) -> Need:
    """The need with this word.

    Raises:
        UserError: for an unknown word, with the nearest one.
    """
    known = {name: one for one in needs() for name in (one.word, *one.also)}
    if len(parts := word.replace(",", " ").split()) > 1:
        raise UserError(f"give needs as separate words: --need {' '.join(parts)}")
    if word.lower() not in known:
        error = unknown_name("need", word, (one.word for one in needs()))
        raise UserError(f"{error}; clew advise explains them")
    return known[word.lower()]


def needs_of(task: str, given: Collection[str] = ()) -> list[Need]:
    """The needs of a task; none for an unknown task.

    Args:
        task: its name. A need's task names with a colon are prefixes of a bridge's names, which
            continue with versions and sizes.
        given: options of `clew train` that change what the agent sees, alone, "wrappers.keep", and
            with their values, "env_options.num_corridors=1".
    """

    parts = task.split(":")

    def known(name: str) -> bool:
        # A module that registers its tasks, as in gymnasium:minigrid:ID, is left out.
        return f"{parts[0]}:{parts[-1]}".startswith(name) if ":" in name else task == name

    return [
        need
        for need in needs()
        if any(map(known, need.tasks)) or any(name in given for name in need.settings)
        if not any(name in given for name in need.unless)
    ]


def for_any() -> tuple[str, ...]:
    """Memories to compare if it is not known what has to be remembered."""
    return tuple(recorded()["for_any"])
