"""Faults in sweeps: their databases, their files, and kills of searching processes."""

import contextlib
import json
import math
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from clew.errors import UserError
from clew.lab.grid import read_results
from clew.lab.sweep.storage import DATABASE
from clew.lab.sweep.sweep import DECLARATION, FINAL, TRIALS, SweepResult
from faults.bench import NO_EFFECT, SURVIVED, Accepted, Bench, Lost, damage
from faults.stored import put_no_file, replace_something, warnings_caught
from faults.sweeping import SIZES, go_through

CODE = "clew_evil:Evil"
NOT_VARIED = ("memory", "algorithm", "network.encoder", "env", "memory_options.cell", "run_dir")
"""Settings that name code or a path, which no row may introduce."""
VALUES = (None, -1, 0, 1, 2**62, 0.5, math.inf, -math.inf, "", CODE, "{", "[]", "null", "RUNNING")
VALUES += ("WAITING", "FAIL", "COMPLETE", b"\xff\xfe", "1970-01-01", "\x1b[2J\n", json.dumps(CODE))
"""Values that are written into a row of any table."""
OTHERS = ("text", "empty", "none", "other tables", "other version", "no tables")
"""Other contents of a file with that name."""


def row_of_a_sweep(bench: Bench, dice: random.Random) -> str:
    """A value of any row of the database replaced: a line, or declared settings."""
    path = _copy(bench)
    with _database(path) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        tables = [name for name in tables if not name.startswith(("sqlite_", "ix_"))]
        counts = {name: _count(database, name) for name in tables}
        table = dice.choice([name for name in tables if counts[name]])
        columns = [column[1] for column in database.execute(f"PRAGMA table_info({table})")]
        column, value = dice.choice(columns), dice.choice(VALUES)
        place = (
            f"rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {dice.randrange(counts[table])})"
        )
        before = database.execute(f"SELECT {column} FROM {table} WHERE {place}").fetchone()
        try:
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {place}", (value,))
        except sqlite3.IntegrityError:
            return NO_EFFECT  # the database itself refuses it
    if before == (value,):
        return NO_EFFECT
    return _declared_or_refused(bench, path)


def code_in_a_sweep(bench: Bench, dice: random.Random) -> str:
    """Rows that name code, as a varied setting or another one: none of it is imported."""
    path = _copy(bench)
    choices = [CODE, *dice.sample([4, 8, 16, "gru"], dice.randrange(4))]
    text = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": choices}})
    with _database(path) as database:
        trials = [n for (n,) in database.execute("SELECT trial_id FROM trials")]
        wanted = trials if dice.random() < 0.5 else [dice.choice(trials)]
        varied = dice.random() < 0.5
        name = "a2c.rollout_length" if varied else dice.choice(NOT_VARIED)
        for trial in wanted:
            if varied:
                database.execute(
                    "UPDATE trial_params SET distribution_json = ?, param_value = 0 "
                    "WHERE trial_id = ? AND param_name = ?",
                    (text, trial, name),
                )
            else:
                database.execute(
                    "INSERT INTO trial_params (trial_id, param_name, param_value, "
                    "distribution_json) VALUES (?, ?, 0, ?)",
                    (trial, name, text),
                )
    return _declared_or_refused(bench, path, refused=True)


def database_of_a_sweep(bench: Bench, dice: random.Random) -> str:
    """A database cut short, partly overwritten or of another kind: a line, or declared settings."""
    path = _copy(bench)
    file = path / DATABASE
    before, how = file.read_bytes(), dice.choice(["damage", "damage", "other", "no file"])
    if how == "damage":
        for _ in range(dice.choice([1, 1, 20])):
            if file.stat().st_size:
                damage(file, dice)
        if file.read_bytes() == before:
            return NO_EFFECT
    if how == "other":
        _put_other(file, dice)
    if how == "no file":
        if dice.random() < 0.3:
            file.unlink()
            file.symlink_to(path / "elsewhere")
        else:
            put_no_file(file, dice)
        line = _declared_or_refused(bench, path, refused=True)
        if (path / "elsewhere").exists():
            raise Accepted("a link that leads elsewhere")
        return line
    return _declared_or_refused(bench, path)


def file_of_a_sweep(bench: Bench, dice: random.Random) -> str:
    """A declaration or rows of a sweep damaged, edited or not a file: a line, or no effect."""
    path = _copy(bench, final=True)
    expected = _told(go_through(_whole(bench)))
    file = dice.choice([path / DECLARATION, *sorted(path.rglob("results.jsonl"))])
    before, how = file.read_bytes(), dice.choice(["damage", "damage", "edit", "no file"])
    if how == "damage":
        damage(file, dice)
    if how == "edit":
        lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
        number = dice.randrange(len(lines))
        values = json.loads(lines[number])
        replace_something(values, dice, VALUES[:4] + (CODE,))
        lines[number] = json.dumps(values)
        file.write_text("\n".join(lines) + "\n")
    if how == "no file":
        put_no_file(file, dice)
    elif file.read_bytes() == before:
        return NO_EFFECT
    with warnings_caught(), _evil(bench):
        try:
            found = go_through(path)
        except UserError as error:
            return _line(error)
    _require_declared(found)
    if how == "damage" and _told(found) != expected:
        raise Accepted("another outcome")
    return SURVIVED


def killed_sweep(bench: Bench, dice: random.Random) -> str:
    """SIGKILL of a searching process: another one takes its trials, here or on another disk."""
    home = bench.path / bench.new_name()
    home.mkdir()
    url = "" if dice.random() < 0.5 else f"sqlite:///{home / 'shared.db'}"
    process = subprocess.Popen(
        [sys.executable, "-m", "faults.sweeping", str(home / "first"), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(dice.uniform(0.0, 3.0))
    killed = process.poll() is None
    process.kill()
    process.communicate()
    path = home / ("other" if url and dice.random() < 0.7 else "first")
    found = go_through(path, url)
    (tried,) = found.tried.values()
    if [t.number for t in tried] != list(range(6)) or {t.state for t in tried} != {"complete"}:
        raise Lost(f"trials: {[(t.number, t.state) for t in tried]}")
    if not found.winners:
        raise Lost("no winner")
    for place in [*(path / TRIALS).iterdir(), path / FINAL]:
        cells = [(row["model"], row["setting"], row["seed"]) for row in read_results(place)]
        if len(cells) != len(set(cells)):
            raise Lost(f"rows twice in {place}")
    return SURVIVED if killed else NO_EFFECT


def _whole(bench: Bench) -> Path:
    """The folder of a finished sweep."""
    path = bench.path / "sweep"
    if not path.exists():
        go_through(path)
    return path


def _copy(bench: Bench, final: bool = False) -> Path:
    """A copy of it, by default without the best's final trainings, so that it is read again."""
    path = Path(shutil.copytree(_whole(bench), bench.path / bench.new_name()))
    if not final:
        shutil.rmtree(path / FINAL)
    return path


@contextlib.contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path / DATABASE)) as database, database:
        yield database


def _count(database: sqlite3.Connection, table: str) -> int:
    return database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def _put_other(file: Path, dice: random.Random) -> None:
    """Puts a file there that no sweep wrote, or that another version wrote."""
    other = dice.choice(OTHERS)
    if other == "other version":
        with _database(file.parent) as database:
            table = dice.choice(
                ["alembic_version SET version_num", "version_info SET schema_version"]
            )
            database.execute(f"UPDATE {table} = ?", (dice.choice(["v9.0.0.a", 99, "x"]),))
        return
    file.unlink()
    if other == "text":
        file.write_text("mine\n" * 500)
    if other == "empty":
        file.write_bytes(b"")
    if other in ("other tables", "no tables"):
        with _database(file.parent) as database:
            database.execute("CREATE TABLE trials (mine TEXT)")
            database.execute("INSERT INTO trials VALUES ('mine')")
            if other == "no tables":
                database.execute("DROP TABLE trials")


@contextlib.contextmanager
def _evil(bench: Bench) -> Iterator[None]:
    """Raises `Accepted` if a module that a fault names is imported."""
    folder, marker = bench.path / "evil", bench.path / "evil" / "marker"
    folder.mkdir(exist_ok=True)
    (folder / "clew_evil.py").write_text(f"open({str(marker)!r}, 'w')\nEvil = object\n")
    with mock.patch.object(sys, "path", [str(folder), *sys.path]):
        yield
    if marker.exists() or "clew_evil" in sys.modules:
        sys.modules.pop("clew_evil", None)
        marker.unlink(missing_ok=True)
        raise Accepted(f"{CODE} was imported")


def _declared_or_refused(bench: Bench, path: Path, *, refused: bool = False) -> str:
    """Continues a sweep: refused in a line, or to its end with settings that it declares."""
    with warnings_caught(), _evil(bench):
        try:
            found = go_through(path)
        except UserError as error:
            return _line(error)
    if refused:
        raise Accepted("what should have been refused")
    _require_declared(found)
    return SURVIVED


def _line(error: UserError) -> str:
    if not str(error).isprintable():
        raise Accepted(f"no line: {str(error)!r}") from error
    return str(error)


def _require_declared(found: SweepResult) -> None:
    """Raises `Accepted` if a setting was trained that the sweep does not declare."""
    for trial in [t for trials in found.tried.values() for t in trials if t.state == "complete"]:
        if trial.values.keys() != SIZES.keys():
            raise Accepted(f"other settings than those that vary: {trial.values}")
        rate, length = trial.values["a2c.learning_rate"], trial.values["a2c.rollout_length"]
        if length not in (4, 8, 16) or not 1e-5 <= rate <= 1e-1:
            raise Accepted(f"settings that are not declared: {trial.values}")
    if not found.winners:
        raise Lost("no winner")


def _told(found: SweepResult) -> Any:
    """The result of a sweep."""
    return found.tried, found.winners
