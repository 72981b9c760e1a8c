"""The declaration of a published study: its options, grid, presets and page."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from clew.errors import UserError
from clew.names import resolve
from clew.pairs import parse_pairs, written

if TYPE_CHECKING:
    from clew.lab.grid import Study
    from clew.run.config import TrainConfig

_REFERENCE = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True)
class GridOptions:
    """Options of every study."""

    seeds: int = 0
    """Number of seeds: the study's own first, then the smallest others; 0 for the study's."""
    run_dir: str = ""
    """The study's folder; by default runs/ and its name, for example runs/makkink-published."""
    list: bool = False
    """Show what would run, without running it."""
    models: str = ""
    """Only these models, separated by commas; all by default (--list names them)."""
    settings: str = ""
    """Only these settings, separated by commas; all by default."""
    steps: int = 0
    """Training steps of every run; 0 for the study's. If runs have checkpoints it may be raised
    later: they continue where they ended."""
    episodes: int = 0
    """Training episodes of every run; 0 for the study's."""
    evaluation_episodes: int = 0
    """Evaluation episodes of every trained agent; 0 for the study's."""
    add_memory: tuple[str, ...] = ()
    """Memories of your own as additional models: package.module:factory, or
    NAME=package.module:factory with a name of your choice, each followed by its options, KEY=VALUE.
    Each is used in the study's own agent."""
    trust: bool = False
    """Import the code named by the runs from which models start (start_from), even if this machine
    has not trained them."""
    workers: int = 0
    """Number of processes, each with one thread; 0 for one per core. If a training takes all cores,
    the number of parallel trainings; 0 for one."""
    ray: str = ""
    """Run on a Ray cluster instead of local processes: auto, local, HOST:PORT or
    ray://HOST:PORT."""

    def narrow(self, whole: "Study", sizes: Mapping[str, Any] | None = None) -> "Study":
        """The part of a study that these options select, with their budget and added memories.

        Args:
            sizes: options of every memory that has them, also of added memories.

        Raises:
            UserError: for an unknown model or setting, with the nearest names, or two budgets.
        """
        agent = next(iter(whole.models.values()))
        study = whole
        for words in _memory_words(self.add_memory):
            study = _with_memory(study, words, agent, sizes or {})
        models, added = names(self.models), [n for n in study.models if n not in whole.models]
        study = study.only(models and [*models, *added], names(self.settings))
        if self.seeds:
            study = replace(study, seeds=first_seeds(study.seeds, self.seeds))
        if self.steps and self.episodes:
            raise UserError("--steps and --episodes exclude each other: give one budget")
        if self.steps:
            study = replace(study, steps=self.steps, episodes=None)
        if self.episodes:
            study = replace(study, episodes=self.episodes, steps=None)
        if self.evaluation_episodes:
            evaluation = replace(study.evaluation, episodes=self.evaluation_episodes)
            study = replace(study, evaluation=evaluation)
        return study


Options = TypeVar("Options", bound=GridOptions)


@dataclass(frozen=True)
class PublishedStudy(Generic[Options]):
    """A study as used by `clew study`, `clew report` and the presets."""

    options: type[Options]
    """The options of `clew study`; a dataclass with a docstring under each field."""
    grid: Callable[[Options], "Study"]
    """The grid of trainings for given options."""
    presets: Mapping[str, "TrainConfig"] = field(default_factory=dict)
    """Settings for `clew train --preset`, by their full name."""
    pages: str = ""
    """The function from the name of a grid to its `clew.lab.studies.report.data.Page`, as
    "module:function"; without one, reports have the general form."""


def first_seeds(own: Sequence[int], count: int) -> tuple[int, ...]:
    """The first `count` of a study's seeds, then the smallest numbers that are not among them."""
    others = (n for n in range(len(own) + count) if n not in own)
    return (*own[:count], *(next(others) for _ in range(count - len(own))))


def names(text: str) -> list[str] | None:
    """Words separated by commas; None if there are none."""
    return [word.strip() for word in text.split(",") if word.strip()] or None


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Integers separated by commas.

    Raises:
        UserError: naming the option and its value.
    """
    try:
        return tuple(int(word) for word in names(text) or ())
    except ValueError:
        raise UserError(f"--{option} must be integers separated by commas, got {text!r}") from None


def added_memories(study: Mapping[str, Any]) -> str:
    """The options that add the memories of a study.json to a command; empty if there are none."""
    words = []
    for name, reference in study.get("memories", {}).items():
        options = study["models"].get(name, {}).get("memory_options", {})
        words += [f"{name}={reference}", *(f"{k}={written(v)}" for k, v in options.items())]
    return f" --add-memory {shlex.join(words)}" if words else ""


def _memory_words(words: Sequence[str]) -> list[list[str]]:
    """Each memory with the options that follow it."""
    found: list[list[str]] = []
    for word in words:
        _, equals, value = word.partition("=")
        if found and equals and not _REFERENCE.fullmatch(value):
            found[-1].append(word)
        else:
            found.append([word])
    return found


def _with_memory(
    study: "Study", words: Sequence[str], agent: "TrainConfig", sizes: Mapping[str, Any]
) -> "Study":
    from clew.memory import options_among  # start: JAX takes a second

    text, *rest = words
    name, equals, reference = text.partition("=")
    if not equals:
        name, reference = text.rpartition(":")[2].lower(), text
    try:
        given = parse_pairs(rest)
    except ValueError as error:
        raise UserError(f"options of --add-memory {text}: {error}") from error
    options = options_among(resolve(reference), sizes) | given
    return study.add_memory(name, reference, options, like=agent)
