"""A user's own study, from its file or module."""

from pathlib import Path
from typing import Any

from clew.errors import UserError
from clew.lab.grid import Study
from clew.lab.studies.published import GridOptions, PublishedStudy
from clew.names import import_own, is_reference, resolve_kind

KINDS = Study | PublishedStudy


def own_study(name: str) -> PublishedStudy[Any]:
    """The study named "package.module:NAME", or the one in FILE.py, with the usual options.

    References "module:Class" in the study are looked up in the file's folder too.

    Raises:
        UserError: if there is no such file or module, or it does not have exactly one study.
    """
    found = resolve_kind(name, KINDS) if is_reference(name) else _in_file(Path(name))
    if isinstance(found, PublishedStudy):
        return found
    return PublishedStudy(options=GridOptions, grid=lambda options: options.narrow(found))


def _in_file(path: Path) -> Any:
    """The only study in a file."""
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    module = import_own(path.stem, str(path), folder)
    if Path(module.__file__ or "").resolve() != path.resolve():
        raise UserError(
            f"{path} cannot be imported: there is another module {path.stem}; rename it"
        )
    studies = {n: value for n, value in vars(module).items() if isinstance(value, KINDS)}
    if len(studies) != 1:
        named = ", ".join(f"{path.stem}:{n}" for n in studies)
        raise UserError(
            f"{path} must have exactly one study at module level, got {len(studies)}"
            + (f"; choose: clew study {named}" if studies else "")
        )
    return next(iter(studies.values()))
