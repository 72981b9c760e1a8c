"""Published studies: a folder each, with its grid, published numbers, claims and page."""

import pkgutil
from typing import TYPE_CHECKING, Any

from clew.errors import unknown_name
from clew.names import is_reference

if TYPE_CHECKING:
    from clew.lab.studies.published import PublishedStudy
    from clew.run.config import TrainConfig

STUDIES: dict[str, str] = {
    "makkink": "clew.lab.studies.makkink.grid:STUDY",
    "tmaze": "clew.lab.studies.tmaze.grid:STUDY",
    "memory-maze": "clew.lab.studies.memory_maze.grid:STUDY",
    "popgym": "clew.lab.studies.popgym.grid:STUDY",
}
"""Every study by name, with the location of its `PublishedStudy`, which is imported on demand."""

COLLECTIONS: dict[str, tuple[str, ...]] = {"pramanik": ("tmaze", "memory-maze")}
"""Publications with several studies: `clew study pramanik --part tmaze` is `clew study tmaze`."""


def find_study(name: str) -> "PublishedStudy[Any]":
    """The study called `name`.

    Args:
        name: one of `STUDIES`, or a study of your own: "package.module:NAME", or FILE.py with one
            study in it.

    Raises:
        UserError: if there is none, with the nearest names, or if a study of your own cannot be
            imported.
    """
    if is_own(name):
        from clew.lab.studies.own import own_study  # start: NumPy and JAX take a second

        return own_study(name)
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return pkgutil.resolve_name(STUDIES[name])


def is_own(name: str) -> bool:
    """Whether a name is that of a user's study: "package.module:NAME" or FILE.py."""
    return is_reference(name) or name.endswith(".py")


def study_presets(name: str) -> "dict[str, TrainConfig]":
    """The settings of a study by name; for a collection, those of its first study.

    Raises:
        UserError: if there is no such study, or it has no settings for single runs.
    """
    known = [study for study in STUDIES if find_study(study).presets]
    wanted = COLLECTIONS[name][0] if name in COLLECTIONS else name
    if wanted not in known:
        raise unknown_name("study with presets", name, [*known, *COLLECTIONS])
    return dict(find_study(wanted).presets)


def presets() -> "dict[str, TrainConfig]":
    """The settings of every study by name, "<publication>/<model>"; some need an extra."""
    return {name: config for study in STUDIES for name, config in find_study(study).presets.items()}


def preset(name: str) -> "TrainConfig":
    """The settings called `name`.

    Raises:
        UserError: if there are none, with the nearest names.
    """
    known = presets()
    if name not in known:
        raise unknown_name("preset", name, known)
    return known[name]
