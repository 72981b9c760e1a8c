"""Checkpoint files: what is written comes back; anything incomplete is refused by name."""

import contextlib
import hashlib
import json
import math
import os
import socket
import struct
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.errors import UserError
from clew.run import checkpoint
from clew.run.checkpoint import FORMAT, MAGIC, CheckpointError, CheckpointWarning
from small_run import full_disk


def tree(update: int = 0):
    return {
        "weights": jnp.arange(6, dtype=jnp.float32).reshape(2, 3) + update,
        "flags": (jnp.array([True, False]), jnp.zeros((0, 4), jnp.int32)),
        "key": jax.random.split(jax.random.key(update), 3),
        "count": jnp.int32(update),
    }


TEMPLATE = jax.eval_shape(tree)


def save(folder, update):
    return checkpoint.save(folder, tree(update), {"update": update, "seconds": 1.5}, {"clew": "0"})


def load(folder) -> Any:
    return checkpoint.load_newest(folder, lambda found: checkpoint.restore(found, TEMPLATE))


def assert_is(state, update):
    expected = tree(update)
    assert jnp.array_equal(
        jax.random.key_data(state.pop("key")), jax.random.key_data(expected.pop("key"))
    )
    jax.tree.map(np.testing.assert_array_equal, state, expected)
    assert jax.tree.map(lambda x: x.dtype, state) == jax.tree.map(lambda x: x.dtype, expected)


def test_what_is_written_comes_back(tmp_path):
    path = save(tmp_path / "new", 12)
    found, state, passed = load(tmp_path / "new")
    assert (found.path, passed, found.meta) == (path, [], {"update": 12, "seconds": 1.5})
    assert_is(state, 12)


def test_three_are_kept_in_order_of_updates(tmp_path):
    for update in (8, 9, 10, 11, 1_000_000_000):
        save(tmp_path, update)
    names = [path.name for path in checkpoint.list_checkpoints(tmp_path)]
    assert names == ["update-000000010.clew", "update-000000011.clew", "update-1000000000.clew"]


def test_no_reader_matches_a_file_in_the_making(tmp_path, monkeypatch):
    seen = []

    def look(*args):
        seen.extend(path.name for path in tmp_path.iterdir())
        assert checkpoint.list_checkpoints(tmp_path) == []
        return replace(*args)

    replace = os.replace
    monkeypatch.setattr(os, "replace", look)
    save(tmp_path, 3)
    assert len(seen) == 1
    (tmp_path / ".update-000000009.clew.77.writing").write_bytes(b"half")
    assert load(tmp_path)[0].meta["update"] == 3
    checkpoint.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["update-000000003.clew"]


def flipped(position):
    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[position] ^= 1
        return bytes(changed)

    return damage


DAMAGES = {
    "empty": (lambda data: b"", "not a checkpoint"),
    "foreign": (lambda data: b"PK\x03\x04 some archive", "not a checkpoint"),
    "head cut": (lambda data: data[:20], "cut short"),
    "header cut": (lambda data: data[:100], "cut short within its header"),
    "contents cut": (lambda data: data[:-1], "cut short"),
    "longer": (lambda data: data + b"x", "damaged"),
    "header changed": (flipped(70), "damaged, its header"),
    "contents changed": (flipped(-3), "damaged, its contents"),
    "newer": (
        lambda data: data[: len(MAGIC)] + struct.pack("<I", FORMAT + 1) + data[12:],
        "newer clew",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_an_unusable_file_is_passed_over_and_named(tmp_path, kind):
    damage, reason = DAMAGES[kind]
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=f"{path.name}.*{reason}"):
        checkpoint.read(path)
    with pytest.warns(CheckpointWarning, match=f"{path.name}.*{reason}.*update-000000001"):
        found, state, passed = load(tmp_path)
    assert passed == [path]
    assert_is(state, 1)
    checkpoint.set_aside(passed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(tmp_path)[0].meta["update"] == found.meta["update"] == 1


def test_any_single_byte_matters(tmp_path):
    path = save(tmp_path, 2)
    data = path.read_bytes()
    for position in range(0, len(data), 97):
        path.write_bytes(flipped(position)(data))
        with pytest.raises(CheckpointError, match=path.name):
            checkpoint.read(path)


def test_when_none_is_usable_every_reason_is_given(tmp_path):
    for update in (1, 2):
        path = save(tmp_path, update)
        path.write_bytes(path.read_bytes()[:-update])
    with pytest.raises(UserError, match=r"(?s)no checkpoint.*update-000000002.*update-000000001"):
        load(tmp_path)


def test_a_folder_without_checkpoints_has_none(tmp_path):
    assert load(tmp_path) is None
    assert load(tmp_path / "missing") is None


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"count": jax.ShapeDtypeStruct((2,), jnp.int32)}, r"/count has shape \[\]"),
        ({"count": jax.ShapeDtypeStruct((), jnp.float32)}, "expected .* float32"),
        ({"more": jax.ShapeDtypeStruct((), jnp.float32)}, "has no /more"),
    ],
)
def test_another_runs_checkpoint_is_refused(tmp_path, change, reason):
    found = checkpoint.read(save(tmp_path, 2))
    with pytest.raises(CheckpointError, match=f"another run or version.*{reason}"):
        checkpoint.restore(found, TEMPLATE | change)


def test_a_part_is_restored_by_its_prefix(tmp_path):
    found = checkpoint.read(save(tmp_path, 2))
    part = checkpoint.restore(found, TEMPLATE["flags"], prefix="/flags")
    jax.tree.map(np.testing.assert_array_equal, part, tree(2)["flags"])


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, where):
    save(tmp_path, 1)

    monkeypatch.setattr(os, where, full_disk)
    with pytest.raises(CheckpointError, match="No space left.*update-000000001.*make room"):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["update-000000001.clew"]
    assert_is(load(tmp_path)[1], 1)


RUN = checkpoint.Identity("3f", ("new", "old"))


@pytest.mark.parametrize(
    "meta, reason",
    [
        ({"run": "4a", "digest": "new"}, r"another run \(4a\), not to this one \(3f\)"),
        ({"run": "3f", "digest": "else"}, "other settings, of digest else, not .* new or old"),
        ({"run": "3f", "digest": "old"}, None),
        (RUN.meta(), None),
        ({}, None),  # of an earlier version
    ],
)
def test_a_checkpoint_says_whose_it_is(tmp_path, meta, reason):
    """A checkpoint of the same shapes from another run used to be accepted silently."""
    meta = {"update": 3, "seconds": 1.5, **meta}
    found = checkpoint.read(checkpoint.save(tmp_path, tree(3), meta, {}))
    if reason is None:
        assert RUN.check(found) is found
    else:
        with pytest.raises(CheckpointError, match=f"update-000000003.clew: belongs to {reason}"):
            RUN.check(found)


def test_a_run_that_goes_on_with_more_steps_keeps_its_checkpoints():
    """If the learning rate depends on the run's length, more steps give another digest."""
    assert RUN.going_on("new") == RUN
    assert RUN.going_on("next") == checkpoint.Identity("3f", ("next", "new", "old"))
    assert len(checkpoint.Identity("", ("new",)).going_on("new").run) == 16


def test_a_checkpoint_keeps_its_name(tmp_path):
    """An old one under a new name used to count as the newest."""
    path = save(tmp_path, 3)
    renamed = path.with_name("update-000000009.clew")
    path.rename(renamed)
    with pytest.raises(CheckpointError, match="update-000000009.clew: it is of update 3, but its"):
        checkpoint.read(renamed)
    state = {"update": jnp.int32(3)}
    path = checkpoint.save(tmp_path, state, {"update": 4}, {})
    with pytest.raises(CheckpointError, match="it is of update 4, but its state"):
        checkpoint.read(path)


def crafted(header: Any, rest: bytes = bytes(8)) -> bytes:
    """A file with correct checksums, whatever its header says."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    head = struct.pack("<8sIQ32s", MAGIC, FORMAT, len(raw), hashlib.sha256(raw).digest())
    return head + raw + rest


def header_of(*leaves: Any, **changes: Any) -> dict[str, Any]:
    """A header for eight bytes."""
    own = [{"path": "/a", "shape": [2], "dtype": "float32", "offset": 0}]
    return {
        "versions": {},
        "meta": {"update": 1, "seconds": 0.0},
        "size": 8,
        "sha256": hashlib.sha256(bytes(8)).hexdigest(),
        "leaves": list(leaves) or own,
    } | changes


def leaf(**changes: Any) -> dict[str, Any]:
    """A leaf of eight bytes."""
    return {"path": "/a", "shape": [2], "dtype": "float32", "offset": 0} | changes


CRAFTED = {
    "no JSON": b"{",
    "no text": b"\xff\xfe{}",
    "deep": b"[" * 100_000,
    "a list": [],
    "null": None,
    "empty": {},
    "no meta": header_of(meta=None),
    "no update": header_of(meta={}),
    "update true": header_of(meta={"update": True}),
    "update NaN": header_of(meta={"update": math.nan}),
    "update below zero": header_of(meta={"update": -1}),
    "seconds NaN": header_of(meta={"update": 1, "seconds": math.nan}),
    "seconds infinite": header_of(meta={"update": 1, "seconds": math.inf}),
    "seconds a text": header_of(meta={"update": 1, "seconds": "1"}),
    "size a text": header_of(size="8"),
    "size below zero": header_of(size=-8),
    "size huge": header_of(size=2**70),
    "checksum null": header_of(sha256=None),
    "leaves an object": header_of(leaves={}),
    "no leaves": header_of(leaves=[]),
    "leaf a number": header_of(3),
    "leaf empty": header_of({}),
    "path a number": header_of(leaf(path=3)),
    "shape a number": header_of(leaf(shape=2)),
    "shape huge": header_of(leaf(shape=[2**40])),
    "shape of huge product": header_of(leaf(shape=[2**30] * 8)),
    "shape of many axes": header_of(leaf(shape=[1] * 1000)),
    "shape below zero": header_of(leaf(shape=[-1, -2])),
    "shape of fractions": header_of(leaf(shape=[2.0])),
    "shape NaN": header_of(leaf(shape=[math.nan])),
    "shape empty and huge": header_of(leaf(shape=[0, 2**30, 2**30]), leaf(path="/b")),
    "dtype unknown": header_of(leaf(dtype="float31")),
    "dtype object": header_of(leaf(shape=[1], dtype="O")),
    "dtype of fields": header_of(leaf(shape=[1], dtype="f4,f4")),
    "dtype of nothing": header_of(leaf(dtype="V0")),
    "dtype a list": header_of(leaf(dtype=["f4"])),
    "offset missing": header_of({"path": "/a", "shape": [2], "dtype": "float32"}),
    "offset below zero": header_of(leaf(offset=-4)),
    "offset beyond": header_of(leaf(offset=8)),
    "overlap": header_of(leaf(shape=[1]), leaf(path="/b", shape=[1])),
    "gap": header_of(leaf(shape=[1])),
    "twice": header_of(leaf(shape=[1]), leaf(shape=[1], offset=4)),
}


@pytest.mark.parametrize("kind", CRAFTED)
def test_a_crafted_header_is_one_clear_line(tmp_path, kind):
    """The checksum only shows that the file is unchanged, not that its author is trusted."""
    path = tmp_path / "update-000000001.clew"
    path.write_bytes(crafted(header_of()))
    assert checkpoint.read(path).leaves["/a"].shape == (2,)
    path.write_bytes(crafted(CRAFTED[kind]))
    with pytest.raises(CheckpointError, match=path.name) as error:
        checkpoint.read(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < len(str(path)) + 150


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device", "a folder"])
def test_what_is_no_file_is_refused_at_once(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    path = Path("update-000000001.clew")
    with contextlib.ExitStack() as stack:
        if kind == "a pipe":
            os.mkfifo(path)
        elif kind == "a socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        elif kind == "a device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
        with pytest.raises(CheckpointError, match=f"it is {kind}, not a file"):
            checkpoint.read(path)
