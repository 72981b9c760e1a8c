"""Rows of JSON, one per line, each with a checksum, in files that are only appended to.

A line is a JSON object that ends with its checksum, the CRC-32 of the bytes before it:

    {"update": 5, "steps": 160, "crc32": "8f0e3c1a"}

Lines end at `\\n` and nowhere else, so that a byte that changes on disk costs only its own line.
Rows without a checksum, from earlier versions or written by hand, are read as they are; to edit a
row, remove its checksum. Reading changes nothing: it leaves out damaged lines and names them in a
`DamagedRowWarning`. The file's owner, before appending, moves damaged lines to `<name>.damaged`.
"""

import itertools
import json
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clew.errors import UserError
from clew.files import open_to_append, read_file, write_file

Row = dict[str, Any]
Kinds = Mapping[str, type]
"""Keys that a row must have, with the types of their values."""
_END = b', "crc32": "%08x"}'
_END_SIZE = len(_END % 0)
_ENDS = re.compile(rb', "crc32": "[0-9a-f]{8}"\}')
_DIFFERENT = 3
"""The end of a line may differ from a checksum's frame in up to this many bytes and still be taken
for one, damaged."""
_TRIES = 100
"""Most places at which a row is looked for within a damaged line."""
CUT_SHORT = "cut short"


class DamagedRowWarning(UserWarning):
    """A row was left out because it is damaged."""


class Line(NamedTuple):
    """A good row."""

    number: int
    """Number of its line, from 1."""
    row: Row
    raw: bytes
    """The bytes in the file, without the line's end."""


class Damage(NamedTuple):
    """A line that is not a row."""

    number: int
    raw: bytes
    reason: str


def encode(row: Row) -> bytes:
    """The line of a row, with its checksum and its end.

    Raises:
        ValueError: if JSON cannot represent one of its values.
    """
    assert row, "a row must not be empty"
    body = json.dumps(row, allow_nan=False).encode()[:-1]
    return body + _END % zlib.crc32(body) + b"\n"


def decode(data: bytes, kinds: Kinds | None = None) -> tuple[list[Line], list[Damage]]:
    """The rows in a file's bytes, and the damaged lines.

    A last line without its end is a row if it is complete. If it was cut short, as by a kill, it is
    damaged with the reason `CUT_SHORT`.
    """
    lines: list[Line] = []
    damages: list[Damage] = []
    *whole, last = data.split(b"\n")
    for number, raw in enumerate([*whole, last], 1):
        if not raw.strip():
            continue
        found = _parse(raw, kinds or {})
        if isinstance(found, dict):
            lines.append(Line(number, found, raw))
            continue
        reason = CUT_SHORT if number > len(whole) else found
        rescued = [Line(number, *pair) for pair in _whole_rows_in(raw, kinds or {})]
        lines += rescued
        rest = raw
        for line in rescued:
            rest = rest.replace(line.raw, b"", 1)
        damages.append(Damage(number, rest, reason))
    return lines, damages


def read(path: Path, kinds: Kinds | None = None) -> list[Line]:
    """The good rows of a file, in order; none if there is no file. Nothing is changed.

    A damaged row is left out with a `DamagedRowWarning`. A last line that was cut short is left out
    without one, since another process may be writing it.

    Raises:
        UserError: if the file cannot be read.
    """
    lines, damages = decode(_bytes_of(path), kinds)
    for damage in damages:
        if damage.reason != CUT_SHORT:
            text = f"{_where(path, damage)}; it is left out"
            warnings.warn(text, DamagedRowWarning, stacklevel=2)
    return lines


class RowFile:
    """A file of rows, open for its owner to append to.

    Opening repairs the damage of a kill or a disk: damaged lines go to `<name>.damaged`, and rows
    that `keep` refuses are dropped. The file is rewritten only if there is something to repair.

    Attributes:
        rows: those that stayed when it was opened.
        dropped: the number of those that did not.
        mended: a line for the user about each row that was moved.

    Raises:
        UserError: from every method, if the disk is full or cannot be read or written to.
    """

    def __init__(
        self, path: Path, kinds: Kinds | None = None, keep: Callable[[Row], bool] | None = None
    ):
        self._path = path
        data = _bytes_of(path)
        lines, damages = decode(data, kinds)
        kept = [line for line in lines if keep is None or keep(line.row)]
        self.rows = [line.row for line in kept]
        self.mended = [f"{_where(path, d)}; it is kept in {aside(path)}" for d in damages]
        self.dropped = len(lines) - len(kept)
        try:
            if damages:
                _append_synced(aside(path), b"".join(d.raw + b"\n" for d in damages))
            if self.mended or self.dropped or (data and not data.endswith(b"\n")):
                write_file(path, (line.raw + b"\n" for line in kept))
            self._file = open(open_to_append(path), "ab", buffering=0)
        except OSError as error:
            raise _cannot_write(path, error) from error

    def append(self, rows: Sequence[Row]) -> None:
        """Writes rows as whole lines, in one call of the operating system."""
        data = b"".join(map(encode, rows))
        if not os.fstat(self._file.fileno()).st_nlink:
            raise UserError(f"{self._path} was removed while rows were written to it")
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            raise _cannot_write(self._path, error) from error

    def sync(self) -> None:
        """Waits until the disk has every row."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _cannot_write(self._path, error) from error

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def aside(path: Path) -> Path:
    """The file for the damaged lines of a file."""
    return path.with_name(f"{path.name}.damaged")


def lack(row: Row, kinds: Kinds) -> str:
    """A text on the first key that is missing or has the wrong type; empty if there is none."""
    for key, kind in kinds.items():
        if key not in row:
            return f"it has no {key!r}"
        if not isinstance(row[key], kind):
            return f"its {key!r} is not of type {kind.__name__}"
    return ""


def _bytes_of(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def _parse(raw: bytes, kinds: Kinds) -> Row | str:
    """The row of a line, without its checksum, or a text that says what is wrong with it."""
    raw = raw.removesuffix(b"\r")  # of a copy made by an editor
    if _resembles_checksum(raw[-_END_SIZE:]):
        body = raw[:-_END_SIZE]
        if raw[-_END_SIZE:] != _END % zlib.crc32(body):
            return "its checksum does not match"
        raw = body + b"}"
    try:
        row = json.loads(raw.decode())
    except (ValueError, RecursionError):
        return "it is not valid JSON"
    if not isinstance(row, dict):
        return "it is not a JSON object"
    if "crc32" in row:
        return "it has nothing but a checksum"  # the rest is gone
    return lack(row, kinds) or row


def _resembles_checksum(end: bytes) -> bool:
    """Whether the end of a line is a checksum, perhaps a damaged one."""
    if len(end) < _END_SIZE:
        return False
    head, tail = _END.split(b"%08x")
    pairs = zip(end[: len(head)] + end[-len(tail) :], head + tail, strict=True)
    return sum(a != b for a, b in pairs) <= _DIFFERENT


def _whole_rows_in(raw: bytes, kinds: Kinds) -> Iterator[tuple[Row, bytes]]:
    """The rows with matching checksums in a damaged line that lost line ends or was torn."""
    begin = 0
    for end in _ENDS.finditer(raw):
        starts = (m.start() + begin for m in re.finditer(rb'\{"', raw[begin : end.end()]))
        for start in itertools.islice(starts, _TRIES):
            piece = raw[start : end.end()]
            found = _parse(piece, kinds)
            if isinstance(found, dict):
                yield found, piece
                break
        begin = end.end()


def _where(path: Path, damage: Damage) -> str:
    return f"{path}: line {damage.number} is damaged, {damage.reason}"


def _append_synced(path: Path, data: bytes) -> None:
    with open(open_to_append(path), "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _cannot_write(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {path}: {error.strerror}; make room and resume")
