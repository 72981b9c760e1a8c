"""Checkpoint files: what is written comes back, what is not whole is refused by name."""

import errno
import os
import struct
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clew.errors import UserError
from clew.run import checkpoint
from clew.run.checkpoint import FORMAT, MAGIC, CheckpointError, CheckpointWarning


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

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, where, full)
    with pytest.raises(CheckpointError, match="No space left.*update-000000001.*make room"):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["update-000000001.clew"]
    assert_is(load(tmp_path)[1], 1)
