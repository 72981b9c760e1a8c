"""Files: read only if they are files, written whole or not at all; and values for JSON and CSV."""

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
"""How systems and mounts say that a folder cannot be opened or written out."""


def make_folder(path: Path) -> None:
    """Makes a folder, and those that it is in.

    Raises:
        UserError: if that is impossible.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path}: {error.strerror}") from error


def read_file(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file.

    Nothing else is read: a pipe would wait for its writer, and a device may never end.

    Args:
        path: of the file; a link is followed.
        most: bytes that it may have.

    Raises:
        OSError: if it cannot be read, is no regular file or has more bytes.
    """
    _require_regular(os.stat(path))
    # Without waiting, in case it has just been replaced by a pipe.
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
    """A handle of a regular file that is appended to and read, made if it is not there.

    A link is not followed: in a folder that somebody else made it may lead to any file.

    Raises:
        OSError: if it cannot be opened, or is a link or no regular file.
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
        UserError: if it cannot be read, is no regular file, larger than 16 MB or no JSON object.
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

    The bytes go to a hidden name of this process, reach the disk, and only then get their name:
    whoever reads `path` at any moment, also after a kill or a power cut, finds what was there
    before or what is there now.

    Args:
        path: of the file.
        blocks: what it holds.
        durable: wait for the disk; without, a power cut may take the file.

    Raises:
        OSError: if the disk is full or cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        # A new one: in a folder that somebody else made that name may lead to any file.
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
    """The value with lists in place of tuples, which JSON does not know."""
    if isinstance(value, dict):
        return {k: with_lists(v) for k, v in value.items()}
    return [with_lists(v) for v in value] if isinstance(value, tuple) else value


def with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """The values with tuples, which JSON does not know, in place of lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def finite(value: Any, digits: int | None = None) -> Any:
    """A value for `json.dumps`: named tuples as objects, paths as text, and null for NaN and inf.

    Args:
        value: numbers, texts, arrays, and what holds them.
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
    """Records as CSV, a column for every name in them; numbers that are not finite are empty.

    Args:
        records: a line each.
        digits: significant digits of fractions.
        names: the columns where there are no records.
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
    """Makes a rename survive a power cut, where the system can open a folder and write it out."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
