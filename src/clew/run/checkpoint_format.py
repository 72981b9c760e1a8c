"""The bytes of a checkpoint.

All integers are little-endian:

    8 bytes   b"CLEWCKPT"
    4 bytes   version of this layout
    8 bytes   length n of the header
    32 bytes  SHA-256 of the header
    n bytes   header, JSON: versions, meta, length and SHA-256 of the rest, and for every leaf of
              the tree its path, shape, type and place in the rest
    the rest  the leaves' bytes, C order, one after another
"""

import hashlib
import json
import struct
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from clew.errors import UserError

MAGIC = b"CLEWCKPT"
FORMAT = 1
_HEAD = struct.Struct("<8sIQ32s")


class CheckpointError(UserError):
    """A file that is no whole checkpoint of this run, or a place where none can be written."""


def encode(state: PyTree, meta: dict[str, Any], versions: dict[str, str]) -> list[bytes]:
    """The blocks of a file, in order: head, header, leaves.

    Args:
        state: a pytree of arrays; random keys are written as their data.
        meta: JSON values to go with it.
        versions: of the libraries, for the record.
    """
    entries, blocks, offset = [], [], 0
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if is_random_key(leaf):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        block = array.tobytes()
        entries.append(
            {
                "path": path_name(path),
                "shape": list(array.shape),
                "dtype": array.dtype.name,
                "offset": offset,
            }
        )
        blocks.append(block)
        digest.update(block)
        offset += len(block)
    header = {
        "versions": versions,
        "meta": meta,
        "size": offset,
        "sha256": digest.hexdigest(),
        "leaves": entries,
    }
    raw = json.dumps(header).encode()
    return [_HEAD.pack(MAGIC, FORMAT, len(raw), hashlib.sha256(raw).digest()), raw, *blocks]


def decode(data: memoryview) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Verifies all of a file's bytes and returns its meta values and its leaves by path.

    Raises:
        CheckpointError: saying what is wrong: not a checkpoint, a newer layout, cut short, or
            changed since it was written.
    """
    if bytes(data[:8]) != MAGIC[: len(data)] or not data:
        raise CheckpointError("not a checkpoint of clew")
    if len(data) < _HEAD.size:
        raise CheckpointError(f"cut short, {len(data)} bytes are left")
    _, version, length, digest = _HEAD.unpack_from(data)
    if version > FORMAT:
        raise CheckpointError(
            f"written by a newer clew (layout {version}, this one reads up to {FORMAT})"
        )
    raw = data[_HEAD.size : _HEAD.size + length]
    if len(raw) < length:
        raise CheckpointError("cut short within its header")
    if hashlib.sha256(raw).digest() != digest:
        raise CheckpointError("damaged, its header does not match its checksum")
    header = json.loads(bytes(raw))
    rest = data[_HEAD.size + length :]
    if len(rest) != header["size"]:
        kind = "cut short" if len(rest) < header["size"] else "damaged"
        raise CheckpointError(f"{kind}, {len(rest)} bytes of {header['size']} are there")
    if hashlib.sha256(rest).hexdigest() != header["sha256"]:
        raise CheckpointError("damaged, its contents do not match their checksum")
    return header["meta"], {entry["path"]: _leaf(rest, entry) for entry in header["leaves"]}


def path_name(path: Any) -> str:
    """A leaf's place in the tree, as "/seed/agent/memory/layers/0/weight"."""
    return "/" + jax.tree_util.keystr(path, simple=True, separator="/")


def is_random_key(leaf: Any) -> bool:
    """Whether an array, or its shape and type, is of random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _leaf(rest: memoryview, entry: dict[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    count = int(np.prod(shape))
    return np.frombuffer(rest, dtype, count, entry["offset"]).reshape(shape)
