"""What a run calls its checkpoints and the numbers of its evaluations; it is read without JAX."""

import re
from pathlib import Path

EVALUATED = "evaluation."
"""Prefix of the metrics of evaluations in rows; without it they are those of training episodes."""
_NAME = re.compile(r"update-([0-9]{1,18})\.clew")


def checkpoint_name(update: int) -> str:
    """The name of the checkpoint after so many updates."""
    return f"update-{update:09d}.clew"


def update_of(path: Path) -> int | None:
    """How many updates a checkpoint's name says; None of another file."""
    named = _NAME.fullmatch(path.name)
    return int(named[1]) if named else None


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first; half-written ones are not among them."""
    paths = folder.iterdir() if folder.is_dir() else ()
    found = [(update, path) for path in paths if (update := update_of(path)) is not None]
    return [path for _, path in sorted(found)]
