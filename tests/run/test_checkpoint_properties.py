"""Checkpoints of any content: what is written comes back, and everything else is refused."""

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from clew.run import checkpoint
from clew.run.checkpoint import FORMAT, MAGIC, CheckpointError
from properties import JSON, TEXTS, few, replaced

HEAD = "<8sIQ32s"
META = {"update": 1, "seconds": 0.0}
LEAVES = arrays.arrays(
    arrays.boolean_dtypes()
    | arrays.integer_dtypes(endianness="=")
    | arrays.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
    arrays.array_shapes(min_dims=0, min_side=0, max_side=3),
)
TREES = st.dictionaries(TEXTS, LEAVES, max_size=4)
NUMBERS = st.sampled_from([-1, 0, 7, 2**40, 2**70, 0.5, math.nan, math.inf])
"""Often impossible as a size, a position or a time."""


def file_of(tree: dict[str, Any]) -> bytes:
    """An intact file."""
    return b"".join(checkpoint.encode(tree, META, {"clew": "0"}))


@few
@given(tree=TREES, seconds=st.floats(0, 1e12), more=st.dictionaries(TEXTS, JSON, max_size=2))
def test_any_arrays_come_back(tree: dict[str, Any], seconds: float, more: dict[str, Any]) -> None:
    """Bit for bit, including NaN, with their types, shapes and additional data."""
    meta = more | META | {"seconds": seconds}
    data = b"".join(checkpoint.encode(tree, meta, {}))
    found, leaves = checkpoint.decode(memoryview(data))
    assert found == meta and list(leaves) == list(tree)
    for name, array in tree.items():
        leaf = leaves[name]
        assert (leaf.dtype, leaf.shape) == (array.dtype, array.shape)
        assert leaf.tobytes() == array.tobytes()


@few
@given(tree=TREES, data=st.data())
def test_any_damage_is_found(tree: dict[str, Any], data: st.DataObject) -> None:
    """Some bytes changed, lost or added, at any position."""
    whole = file_of(tree)
    at = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(at, min(len(whole), at + 40)))
    damaged = whole[:at] + data.draw(st.binary(max_size=40)) + whole[end:]
    if damaged == whole:
        checkpoint.decode(memoryview(damaged))
        return
    with pytest.raises(CheckpointError) as error:
        checkpoint.decode(memoryview(damaged))
    assert "\n" not in str(error.value)


@few
@given(tree=TREES, data=st.data())
def test_any_header_is_read_or_refused(tree: dict[str, Any], data: st.DataObject) -> None:
    """One or two values of a valid header are replaced, with a new checksum."""
    whole = file_of(tree)
    begin = struct.calcsize(HEAD)
    end = begin + struct.unpack_from(HEAD, whole)[2]
    header, rest = json.loads(whole[begin:end]), whole[end:]
    for _ in range(data.draw(st.integers(1, 2))):
        replaced(data.draw, header, NUMBERS | JSON)
    raw = json.dumps(header).encode()
    head = struct.pack(HEAD, MAGIC, FORMAT, len(raw), hashlib.sha256(raw).digest())
    try:
        _, leaves = checkpoint.decode(memoryview(head + raw + rest))
    except CheckpointError as error:
        assert "\n" not in str(error) and len(str(error)) < 200
        return
    assert sum(leaf.nbytes for leaf in leaves.values()) == len(rest)


@few
@given(data=st.binary(max_size=80), magic=st.booleans())
def test_any_file_is_refused(data: bytes, magic: bool, tmp_path: Path) -> None:
    """By its name, in one line, even if it begins like a checkpoint."""
    path = tmp_path / "update-000000001.clew"
    path.write_bytes(MAGIC + data if magic else data)
    with pytest.raises(CheckpointError, match=path.name) as error:
        checkpoint.read(path)
    assert "\n" not in str(error.value)


@few
@given(tree=TREES, name=st.sampled_from("xyz"), other=LEAVES)
def test_a_state_of_another_shape_is_refused(
    tree: dict[str, Any], name: str, other: np.ndarray
) -> None:
    """A restored state has the requested names, shapes and types."""
    found = checkpoint.Checkpoint(Path("x.clew"), *checkpoint.decode(memoryview(file_of(tree))))
    for place in (name, *tree):
        saved = tree.get(place)
        if saved is not None and (saved.dtype, saved.shape) == (other.dtype, other.shape):
            continue
        with pytest.raises(CheckpointError, match="belongs to another run"):
            checkpoint.restore(found, {place: np.empty_like(other)})
