"""Rows of JSON lines: damage to some bytes of a file never affects other rows."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.errors import UserError
from clew.run import json_lines
from clew.run.folder import locked
from clew.run.json_lines import CUT_SHORT, DamagedRowWarning, RowFile, aside, decode, encode
from properties import JSON, TEXTS, few


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows that differ by their number."""
    number = draw(st.integers(1, 8))
    return [{"n": n, draw(TEXTS) + "x": draw(JSON)} for n in range(number)]


@few
@given(rows=tables(), checked=st.booleans())
def test_rows_come_back(rows: list[dict[str, Any]], checked: bool) -> None:
    """With checksums, and without them as in earlier versions."""
    data = b"".join(encode(r) if checked else json.dumps(r).encode() + b"\n" for r in rows)
    lines, damages = decode(data)
    assert [line.row for line in lines] == rows and not damages
    assert [json.loads(line)["n"] for line in data.split(b"\n")[:-1]] == list(range(len(rows)))
    # Without the last newline, and with another system's newlines, they are the same.
    assert decode(data[:-1]) == (lines, [])
    assert [line.row for line in decode(data.replace(b"\n", b"\r\n"))[0]] == rows


@few
@given(data=st.binary(max_size=200) | TEXTS.map(str.encode))
def test_any_bytes_are_rows_or_damage(data: bytes) -> None:
    """Every line is a row or damage, and every row is an object."""
    lines, damages = decode(data)
    numbers = {n for n, raw in enumerate(data.split(b"\n"), 1) if raw.strip()}
    assert numbers == {line.number for line in lines} | {damage.number for damage in damages}
    assert all(isinstance(line.row, dict) for line in lines)


def flip_bit(data: bytearray, at: int, draw: st.DrawFn) -> None:
    """One bit of one byte."""
    data[at] ^= 1 << draw(st.integers(0, 7))


def set_byte(data: bytearray, at: int, draw: st.DrawFn) -> None:
    """One byte, often one that other programs treat as a line break."""
    data[at] = draw(st.sampled_from([*b"\r\n\v\f\x1c\x85\0{}", 255]))


def zero_block(data: bytearray, at: int, draw: st.DrawFn) -> None:
    """Some bytes of zeros, as a power cut leaves them."""
    end = at + draw(st.integers(1, 60))
    data[at:end] = bytes(len(data[at:end]))


def lose_block(data: bytearray, at: int, draw: st.DrawFn) -> None:
    """Removes some bytes."""
    del data[at : at + draw(st.integers(1, 60))]


@pytest.mark.parametrize("damage", [flip_bit, set_byte, zero_block, lose_block])
@few
@given(rows=tables(), chance=st.data())
def test_damage_costs_the_rows_that_it_touches(
    damage: Any, rows: list[dict[str, Any]], chance: st.DataObject
) -> None:
    """No other row is lost or changed, no wrong row is accepted, and every loss is named."""
    whole = b"".join(map(encode, rows))
    data = bytearray(whole)
    damage(data, chance.draw(st.integers(0, len(whole) - 1)), chance.draw)
    lines, damages = decode(bytes(data))
    numbers = [line.row["n"] for line in lines]
    assert numbers == sorted(set(numbers))
    # A row that lost its checksum with a block reads like one of an earlier version.
    assert damage is lose_block or all(line.row == rows[line.row["n"]] for line in lines)
    untouched = [n for n, row in enumerate(rows) if encode(row)[:-1] in bytes(data)]
    assert set(untouched) <= set(numbers)
    # Rows that were lost completely leave nothing that could be named.
    lines_left = bytes(data).splitlines(keepends=True)
    only_whole = {b"\n", *map(encode, rows)}.issuperset(lines_left)
    assert damages or only_whole or numbers == list(range(len(rows)))


def test_a_checksum_without_its_row_is_no_row() -> None:
    """If a lost block reaches from the beginning of a row to its checksum."""
    line = encode({"n": 1})
    lines, damages = decode(b"{" + line[line.index(b'"crc32"') :] + line)
    assert [found.row for found in lines] == [{"n": 1}]
    assert [damage.reason for damage in damages] == ["it has nothing but a checksum"]


def test_a_row_of_before_is_damaged_where_it_lacks_a_key() -> None:
    """Without a checksum, a key may have become another one."""
    data = b'{"update": 1}\n{"updatd": 2}\n{"update": "3"}\n[4]\n\n{"update": 5}\n' + b"[" * 99_999
    lines, damages = decode(data, {"update": int})
    assert [(line.number, line.row["update"]) for line in lines] == [(1, 1), (6, 5)]
    assert [(d.number, d.reason) for d in damages] == [
        (2, "it has no 'update'"),
        (3, "its 'update' is not of type int"),
        (4, "it is not a JSON object"),
        (7, CUT_SHORT),
    ]


def write(path: Path, *rows: dict[str, Any]) -> None:
    """Writes rows like their owner."""
    file = RowFile(path)
    file.append(rows)
    file.sync()
    file.close()


def test_reading_changes_nothing_and_names_the_line(tmp_path: Path) -> None:
    """A line that another process may still be writing is not damage."""
    path = tmp_path / "rows.jsonl"
    assert json_lines.read(path) == []
    write(path, {"a": 1}, {"a": 2}, {"a": 3})
    data = path.read_bytes().replace(b'"a": 2', b'"a": 7') + b'{"a": 4, "cr'
    path.write_bytes(data)
    with pytest.warns(DamagedRowWarning) as told:
        assert [line.row for line in json_lines.read(path)] == [{"a": 1}, {"a": 3}]
    (warning,) = told
    assert f"{path}: line 2 is damaged, its checksum does not match" in str(warning.message)
    assert path.read_bytes() == data and os.listdir(tmp_path) == [path.name]


def test_the_owner_moves_damaged_lines_and_says_so(tmp_path: Path) -> None:
    """Afterwards the file is intact, and the good lines have the same bytes."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 0}\n')  # of an earlier version
    write(path, {"a": 1}, {"a": 2}, {"a": 3})
    good = path.read_bytes().split(b"\n")
    bad = good[2].replace(b"2", b"7", 1)
    path.write_bytes(b"\n".join([*good[:2], bad, *good[3:]]) + b'{"a": 4, "cr')
    file = RowFile(path)
    assert file.rows == [{"a": 0}, {"a": 1}, {"a": 3}] and file.dropped == 0
    assert [line.split(" is ")[0] for line in file.mended] == [f"{path}: line {n}" for n in (3, 5)]
    assert all(f"kept in {aside(path)}" in line for line in file.mended)
    file.append([{"a": 5}])
    file.close()
    assert path.read_bytes() == b"\n".join([*good[:2], good[3], encode({"a": 5})])
    assert aside(path).read_bytes() == bad + b'\n{"a": 4, "cr\n'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(json_lines.read(path)) == 4
    before = path.stat().st_mtime_ns, path.stat().st_ino
    RowFile(path).close()
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A pipe would wait for its writer."""
    path = tmp_path / "metrics.jsonl"
    os.mkfifo(path)
    with pytest.raises(UserError, match="metrics.jsonl cannot be read: it is a pipe, not a file"):
        clew.read_metrics(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="it is a folder, not a file"):
        RowFile(path)


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    """In another user's folder it may lead to a file of one's own."""
    own, folder = tmp_path / "own", tmp_path / "run"
    folder.mkdir()
    own.write_text('{"a": 1}\n')
    for name in ("rows.jsonl", ".lock", "rows.jsonl.damaged"):
        (folder / name).symlink_to(own)
    with pytest.raises(UserError, match="cannot write .*rows.jsonl: it is a link, not a file"):
        RowFile(folder / "rows.jsonl")
    with pytest.raises(UserError, match="it is a link"), locked(folder):
        pass
    (folder / "rows.jsonl").unlink()
    (folder / "rows.jsonl").write_text("damaged\n")
    with pytest.raises(UserError, match="it is a link"):
        RowFile(folder / "rows.jsonl")
    assert own.read_text() == '{"a": 1}\n'


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """And the row that was cut short does not count as a row afterwards."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    file = RowFile(tmp_path / "rows.jsonl")
    file.append([{"a": 1}])
    file._file.close()
    file._file = open("/dev/full", "ab", buffering=0)
    with pytest.raises(UserError, match="cannot write .*rows.jsonl: No space left.*make room"):
        file.append([{"a": 2}])
    file.close()
