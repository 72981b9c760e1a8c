"""Hashes of the user's code in a study, which no digest includes."""

import hashlib
import inspect
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from clew.errors import UserError, counted
from clew.lab.grid.results import RESULTS, cell_of, of_budget
from clew.lab.grid.study import Study
from clew.names import is_reference, resolve
from clew.run.config import TrainConfig
from clew.run.json_lines import Row

SOURCES = "sources"
"""Key of a row's file hashes: of each memory, task, learner, encoder and schedule of the user's, by
reference."""
_LIBRARY = Path(__file__).parents[2]


def own_files(
    config: TrainConfig, memories: Mapping[str, str], tasks: Mapping[str, str]
) -> dict[str, Path]:
    """The file of each memory, task, learner, encoder and schedule that is not the library's own.

    Returns:
        Files by "package.module:name"; references without a file are left out.
    """
    named = [memories.get(config.memory, config.memory), tasks.get(config.env, config.env)]
    named += [name for name, _ in config.own_parts if name not in config.loggers]
    files = {reference: _file_of(reference) for reference in named if is_reference(reference)}
    return {reference: file for reference, file in files.items() if file is not None}


def _file_of(reference: str) -> Path | None:
    try:
        found = resolve(reference)
    except UserError:  # a task of a package, such as "gymnasium:ID"
        return None
    try:
        file = inspect.getsourcefile(found)
    except TypeError:  # neither a class nor a function, but it can be called
        file = sys.modules[reference.partition(":")[0]].__file__
    except OSError:
        return None
    if file is None or not Path(file).is_file() or Path(file).is_relative_to(_LIBRARY):
        return None
    return Path(file)


def hash_of(file: Path) -> str:
    """Twelve hexadecimal digits that identify the contents of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


imported_hash = lru_cache(maxsize=None)(hash_of)
"""The hash at a worker's first call, which is when it imports the file."""


def changed_code(study: Study, rows: list[Row], path: Path) -> list[str]:
    """A line for the user if code has changed since some rows of the study's folder were made.

    Rows without hashes are accepted.
    """
    now: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    wanted, files, count = set(study.cells()), set[str](), 0
    for row in rows:
        cell, known = cell_of(row), row.get(SOURCES)
        if not isinstance(known, dict) or cell not in wanted or not of_budget(study, row):
            continue
        pair = cell.model, cell.setting
        if pair not in now:
            own = own_files(study.config(*pair), study.memories, study.tasks)
            now[pair] = {name: (str(file), hash_of(file)) for name, file in own.items()}
        changed = {
            file for name, (file, code) in now[pair].items() if known.get(name, code) != code
        }
        files |= changed
        count += bool(changed)
    if not count:
        return []
    return [
        f"{path / RESULTS} has {counted(count, 'row')} of other code, as "
        f"{' and '.join(sorted(files))} changed since, and means are over all; to train all with "
        "the code of today choose another folder (--run-dir)"
    ]
