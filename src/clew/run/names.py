"""Names of a run's checkpoints and of its evaluations' metrics, without importing JAX."""

import re
from pathlib import Path

EVALUATED = "evaluation."
"""Prefix of the metrics of evaluations in rows; without it they are those of training episodes."""
_NAME = re.compile(r"update-([0-9]{1,18})\.clew")


def checkpoint_name(update: int) -> str:
    """The name of the checkpoint after this number of updates."""
    return f"update-{update:09d}.clew"


def update_of(path: Path) -> int | None:
    """The number of updates in a checkpoint's name; None for other files."""
    named = _NAME.fullmatch(path.name)
    return int(named[1]) if named else None


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first, without incomplete ones."""
    paths = folder.iterdir() if folder.is_dir() else ()
    found = [(update, path) for path in paths if (update := update_of(path)) is not None]
    return [path for _, path in sorted(found)]
