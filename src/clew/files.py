"""Reads regular files alone, writes files whole or not at all, converts values to JSON and CSV."""

import contextlib
import csv
import errno
import io
import json
import math
import numbers
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clew.errors import UserError

_SETTINGS_BYTES = 2**24
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_NO_FOLDER_SYNC = {
    *(errno.EACCES, errno.EPERM, errno.EISDIR),
    *(errno.EINVAL, errno.EBADF, errno.ENOTSUP),
}
"""Error codes for a folder that cannot be opened or synced on this system or mount."""


def make_folder(path: Path) -> None:
    """Makes a folder and its parents.

    Raises:
        UserError: if that is impossible.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from error


def read_file(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file.

    Nothing else is read: a read from a pipe would block, and a device may never end.

    Args:
        path: of the file; a link is followed.
        most: the most bytes that it may have.

    Raises:
        OSError: if it cannot be read, is not a regular file or has more bytes.
    """
    _require_regular(os.stat(path))
    # Non-blocking, in case a pipe has just replaced the file.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        _require_regular(found)
        if most is not None and found.st_size > most:
            raise OSError(errno.EFBIG, f"has {found.st_size} bytes, expected {most} at most")
        try:
            return file.read(found.st_size)
        except (MemoryError, OverflowError) as error:
            text = f"has {found.st_size} bytes, more than fit into memory"
            raise OSError(errno.ENOMEM, text) from error


def open_to_append(path: Path) -> int:
    """A descriptor of a regular file, to append to it and to read it; created if missing.

    A link is not followed: in a folder from somebody else it could lead to any file.

    Raises:
        OSError: if it cannot be opened, is a link or is not a regular file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link, not a file")
    handle = os.open(path, flags, 0o666)
    try:
        _require_regular(os.fstat(handle))
    except OSError:
        os.close(handle)
        raise
    return handle


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of settings.

    Raises:
        UserError: if it cannot be read, or is not a regular file of at most 16 MB with a JSON
            object.
    """
    try:
        found = json.loads(read_file(path, _SETTINGS_BYTES).decode())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: it is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} cannot be read: it is not a JSON object")
    return found


def write_file(path: Path, blocks: Iterable[bytes | memoryview], *, durable: bool = True) -> None:
    """Writes a file whole or not at all.

    The bytes go to a hidden temporary file of this process, are synced to disk, and only then
    renamed. A reader of `path` finds either the old or the new contents at any moment, also after
    a kill or a power cut.

    Args:
        path: of the file.
        blocks: the contents.
        durable: wait for the disk; otherwise a power cut may lose the file.

    Raises:
        OSError: if the disk is full or cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        # O_EXCL: in a folder from somebody else that name could be a link to any file.
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as file:
            for block in blocks:
                file.write(block)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            _sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file whole or not at all.

    Raises:
        UserError: if the disk is full or cannot be written to.
    """
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all.

    Raises:
        UserError: if the disk is full or cannot be written to.
    """
    try:
        write_file(path, [text.encode()])
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def with_lists(value: Any) -> Any:
    """The value with lists in place of tuples, which JSON does not have."""
    if isinstance(value, dict):
        return {k: with_lists(v) for k, v in value.items()}
    return [with_lists(v) for v in value] if isinstance(value, tuple) else value


def with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """The values with tuples, which JSON does not have, in place of lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def finite(value: Any, digits: int | None = None) -> Any:
    """A value for `json.dumps`: named tuples as objects, paths as text, and null for NaN and inf.

    Args:
        value: numbers, strings, arrays, and containers of them.
        digits: significant digits that numbers are rounded to; all by default.
    """
    if isinstance(value, float):
        rounded = value if digits is None else float(f"{value:.{digits}g}")
        return rounded if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): finite(v, digits) for k, v in value.items()}
    if hasattr(value, "_asdict"):  # foreign: a NamedTuple
        return finite(value._asdict(), digits)
    if hasattr(value, "tolist"):  # foreign: an array
        return finite(value.tolist(), digits)
    if isinstance(value, list | tuple):
        return [finite(v, digits) for v in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def comma_separated(
    records: Sequence[dict[str, Any]], digits: int = 6, names: Sequence[str] = ()
) -> str:
    """Records as CSV with a column for every name; numbers that are not finite are left empty.

    Args:
        records: one for each line.
        digits: significant digits of fractions.
        names: the columns if there are no records.
    """

    def written(value: Any) -> Any:
        if not isinstance(value, numbers.Real) or isinstance(value, numbers.Integral):
            return value
        return f"{float(value):.{digits}g}" if math.isfinite(value) else ""

    fields = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, fields or names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: written(v) for name, v in record.items()} for record in records)
    return text.getvalue()


def _require_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file")


def _sync_folder(folder: Path) -> None:
    """Makes a rename survive a power cut, where the system can open and sync a folder."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
