"""Checkpoints: one file each, renamed into place when complete, and verified when read.

All integers are little-endian:

    8 bytes   b"CLEWCKPT"
    4 bytes   version of this layout
    8 bytes   length n of the header
    32 bytes  SHA-256 of the header
    n bytes   header, JSON: versions, meta, length and SHA-256 of the rest, and for every leaf of
              the tree its path, shape, type and place in the rest
    the rest  the leaves' bytes, C order, one after another

A replay buffer may be large, and only a resumed run needs it. It is a file of the same format
beside the checkpoint, "update-N.replay", whose digest is in the checkpoint's header. The best
agents so far are another file of that format, "best.clew" (see `clew.run.best`), and so are agents
that were saved under a name (see `clew.run.save`).
"""

import contextlib
import hashlib
import json
import math
import os
import secrets
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from clew.errors import UserError
from clew.files import read_file, write_file
from clew.run.migration import migrate_leaves
from clew.run.names import checkpoint_name, list_checkpoints, update_of

MAGIC = b"CLEWCKPT"
FORMAT = 1
_HEAD = struct.Struct("<8sIQ32s")
KEEP = 3
BEST = "best.clew"
UNUSABLE = "unusable-"
"""Prefix of files that were set aside."""
REPLAY = "replay"
"""Key in the meta values of a checkpoint: the digest of its replay file, if it has one."""
_AXES = 16
"""Most axes of an array in a file."""


class CheckpointError(UserError):
    """A file is not an intact checkpoint of this run, or a checkpoint cannot be written."""


class CheckpointWarning(UserWarning):
    """A checkpoint was skipped in favour of the one before it."""


class Identity(NamedTuple):
    """The run that a checkpoint belongs to."""

    run: str
    """Random id, drawn when the run's folder was made; empty for a run of an earlier version."""
    digests: tuple[str, ...]
    """Digests of the settings: the present one, and those of earlier parts of the run."""

    def meta(self) -> dict[str, str]:
        """The entries about the run in its checkpoints."""
        return {"run": self.run, "digest": self.digests[0]}

    def going_on(self, digest: str) -> "Identity":
        """The run's identity with perhaps new settings; a run without an id gets one."""
        earlier = (known for known in self.digests if known != digest)
        return Identity(self.run or secrets.token_hex(8), (digest, *earlier))

    def check(self, checkpoint: "Checkpoint") -> "Checkpoint":
        """Refuses a checkpoint of another run or other settings; old ones have neither entry.

        Raises:
            CheckpointError: naming both.
        """
        path, meta = checkpoint.path, checkpoint.meta
        run, digest = meta.get("run"), meta.get("digest")
        if run is not None and run != self.run:
            text = f"another run ({run}), not to this one ({self.run or 'without identifier'})"
            raise CheckpointError(f"{path}: belongs to {text}")
        if digest is not None and digest not in self.digests:
            raise CheckpointError(
                f"{path}: belongs to other settings, of digest {digest}, not to this run's, of "
                f"{' or '.join(self.digests)}"
            )
        return checkpoint


class Checkpoint(NamedTuple):
    """The contents of a file."""

    path: Path
    meta: dict[str, Any]
    """"update", "seconds", "run" and "digest", and everything else that the writer added."""
    leaves: dict[str, np.ndarray]
    """Every leaf by its path in the tree."""
    digest: str = ""
    """Digest of the file's header, which contains the digest of the rest."""


def save(
    folder: Path, state: PyTree, meta: dict[str, Any], versions: dict[str, str], replay: PyTree = ()
) -> Path:
    """Writes a checkpoint and removes all but the newest three.

    A kill or a full disk leaves the checkpoints that were there before (see `write_file`).

    Args:
        folder: the folder of checkpoints. It is made if missing, but its parent is not: a run
            whose folder was removed has no reason to save.
        state: a pytree of arrays.
        meta: JSON values to store with it; "update" names the file.
        replay: a pytree of arrays that go into a separate file, if there are any.

    Raises:
        CheckpointError: if the disk is full or cannot be written to.
    """
    path = folder / checkpoint_name(meta["update"])
    with _written(path):
        if jax.tree.leaves(replay):
            blocks = encode(named_leaves(replay), {"update": meta["update"]}, {})
            write_file(_replay_of(path), blocks)
            meta = meta | {REPLAY: _digest_of(blocks[0])}
        write_file(path, encode(named_leaves(state), meta, versions))
        for old in list_checkpoints(folder)[:-KEEP]:
            old.unlink(missing_ok=True)
            _replay_of(old).unlink(missing_ok=True)
    return path


def save_agents(
    path: Path, leaves: Mapping[str, Any], meta: dict[str, Any], versions: dict[str, str]
) -> None:
    """Writes or replaces a file with agents alone; the other arguments are those of `save`."""
    with _written(path):
        write_file(path, encode(leaves, meta, versions))


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    """Makes the folder for a file; if writing fails, the error says what is safe."""
    folder = path.parent
    try:
        folder.mkdir(exist_ok=True)
        yield
    except OSError as error:
        if not folder.parent.is_dir():
            why = f"the folder {folder.parent} was removed"
            raise CheckpointError(f"cannot write {path}: {why}") from error
        safe = ""
        with contextlib.suppress(OSError):
            if kept := list_checkpoints(folder):
                safe = f"; the run is safe up to {kept[-1].name}, make room and resume"
        raise CheckpointError(f"cannot write {path}: {error.strerror}{safe}") from error


def remove_leftovers(folder: Path) -> None:
    """Removes the incomplete files of killed writers; only the run's owner may call it."""
    if folder.is_dir():
        for path in folder.glob(".*.writing"):
            path.unlink(missing_ok=True)
        for path in folder.glob("update-*.replay"):
            if not path.with_suffix(".clew").exists():
                path.unlink(missing_ok=True)


def size_of_replays(folder: Path) -> int:
    """Size in bytes of the replay files in a folder of checkpoints."""
    return sum(path.stat().st_size for path in folder.glob("update-*.replay"))


def read(path: Path) -> Checkpoint:
    """Reads a file and verifies all of it.

    Raises:
        CheckpointError: naming the file and what is wrong with it.
    """
    try:
        data = memoryview(read_file(path))
        meta, leaves = decode(data)
        _check_update(path, meta, leaves)
        leaves = migrate_leaves(leaves)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return Checkpoint(path, meta, leaves, _digest_of(data))


def read_replay(checkpoint: Checkpoint) -> Checkpoint:
    """The replay buffer from the file beside a checkpoint; empty if there is none.

    Raises:
        CheckpointError: naming the file and what is wrong with it, also if it belongs to another
            checkpoint.
    """
    path, digest = _replay_of(checkpoint.path), checkpoint.meta.get(REPLAY)
    if digest is None:
        return Checkpoint(path, {}, {})
    found = read(path)
    if found.digest != digest:
        raise CheckpointError(f"{path}: is not the one that {checkpoint.path.name} was saved with")
    return found


def restore(checkpoint: Checkpoint, template: PyTree, prefix: str = "") -> PyTree:
    """The checkpoint's arrays in the structure of `template`.

    Args:
        checkpoint: what `read` returned.
        template: a pytree whose leaves have shape and dtype.
        prefix: of the paths, to restore a part of the saved tree.

    Raises:
        CheckpointError: naming a leaf that is missing or has another shape or type.
    """

    def take(path: Any, like: Any) -> Any:
        name = prefix + path_name(path)
        where = (
            f"{checkpoint.path}: belongs to another run or version, or its task or memory has "
            "changed since"
        )
        if name not in checkpoint.leaves:
            raise CheckpointError(f"{where}, it has no {name}")
        array = checkpoint.leaves[name]
        is_key = is_random_key(like)
        expected = jax.eval_shape(jax.random.key_data, like) if is_key else like
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise CheckpointError(
                f"{where}, {name} has shape {list(array.shape)} and type {array.dtype}, expected "
                f"{list(expected.shape)} and {expected.dtype}"
            )
        if is_key:
            return jax.random.wrap_key_data(jnp.asarray(array))
        return jax.device_put(array, may_alias=False)  # jnp.array compiles one for every shape

    return jax.tree_util.tree_map_with_path(take, template)


def load_newest(
    folder: Path, accept: Callable[[Checkpoint], Any]
) -> tuple[Checkpoint, Any, list[Path]] | None:
    """The newest checkpoint that is intact and that `accept` accepts.

    Every skipped one is named in a `CheckpointWarning` with the reason.

    Args:
        folder: of the checkpoints.
        accept: converts a checkpoint, or raises `CheckpointError`.

    Returns:
        The checkpoint, the result of `accept` and the newer files that were skipped; None if the
        folder has no checkpoint.

    Raises:
        CheckpointError: if there are checkpoints but none is usable, with every file and reason.
    """
    reasons: list[str] = []
    passed: list[Path] = []
    for path in reversed(list_checkpoints(folder)):
        try:
            checkpoint = read(path)
            made = accept(checkpoint)
        except CheckpointError as error:
            reasons.append(str(error))
            passed.append(path)
            continue
        for reason in reasons:
            text = f"{reason}; {path.name} is used instead"
            warnings.warn(text, CheckpointWarning, stacklevel=2)
        return checkpoint, made, passed
    if reasons:
        raise CheckpointError("no checkpoint is usable:\n  " + "\n  ".join(reasons))
    return None


def set_aside(paths: list[Path]) -> None:
    """Renames unusable checkpoints, so that they are neither read again nor counted as kept."""
    for path in paths:
        os.replace(path, path.with_name(f"{UNUSABLE}{path.name}"))


def _replay_of(path: Path) -> Path:
    return path.with_suffix(".replay")


def _digest_of(head: bytes | memoryview) -> str:
    """Digest of the header of a file with this beginning."""
    return _HEAD.unpack_from(head)[3].hex()


def encode(
    leaves: Mapping[str, Any], meta: dict[str, Any], versions: dict[str, str]
) -> list[bytes | memoryview]:
    """The blocks of a file, in order: head, header, leaves. Large leaves are not copied.

    Args:
        leaves: arrays by their paths; random keys are written as their data.
    """
    entries, blocks, offset = [], [], 0
    digest = hashlib.sha256()
    for name, leaf in leaves.items():
        if is_random_key(leaf):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        block = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        entries.append(
            {"path": name, "shape": list(array.shape), "dtype": array.dtype.name, "offset": offset}
        )
        blocks.append(block)
        digest.update(block)
        offset += block.nbytes
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
    """Verifies all bytes of a file, and returns its meta values and its leaves by path.

    Raises:
        CheckpointError: for a file that is not a checkpoint, has a newer layout, is cut short, or
            was changed after it was written.
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
    header = _read_header(bytes(raw))
    rest = data[_HEAD.size + length :]
    if len(rest) != header["size"]:
        kind = "cut short" if len(rest) < header["size"] else "damaged"
        raise CheckpointError(f"{kind}, {len(rest)} bytes of {header['size']} are there")
    if hashlib.sha256(rest).hexdigest() != header["sha256"]:
        raise CheckpointError("damaged, its contents do not match their checksum")
    return header["meta"], _read_leaves(rest, header["leaves"])


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree by their paths."""
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def path_name(path: Any) -> str:
    """A leaf's path in the tree, such as "/seed/agent/memory/layers/0/weight"."""
    return "/" + jax.tree_util.keystr(path, simple=True, separator="/")


def is_random_key(leaf: Any) -> bool:
    """Whether an array, or its shape and type, holds random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _read_header(raw: bytes) -> dict[str, Any]:
    """The header, checked to have the keys and types that `encode` writes.

    A checksum shows that nothing was changed, not who wrote it, so every value is checked.
    """
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError("its header is not valid JSON") from error
    _require_types("its header", header, {"meta": dict, "size": int, "sha256": str, "leaves": list})
    _require_types("its header's meta", header["meta"], {"update": int})
    seconds = header["meta"].get("seconds", 0.0)
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        raise CheckpointError(f"its seconds of training are {seconds!r}")
    if header["meta"]["update"] < 0:
        raise CheckpointError(f"its update is {header['meta']['update']}")
    return header


def _require_types(what: str, value: Any, types: dict[str, type]) -> None:
    if not isinstance(value, dict):
        raise CheckpointError(f"{what} is not a JSON object")
    for key, kind in types.items():
        if type(value.get(key)) is not kind:
            raise CheckpointError(f"{what} has {value.get(key)!r:.40} as {key}, no {kind.__name__}")


def _read_leaves(rest: memoryview, entries: list[Any]) -> dict[str, np.ndarray]:
    """The leaves, which have to fill the rest of the file without gap or overlap."""
    leaves: dict[str, np.ndarray] = {}
    end = 0
    for number, entry in enumerate(entries):
        what = f"leaf {number} of its header"
        _require_types(what, entry, {"path": str, "shape": list, "dtype": str, "offset": int})
        what = f"its leaf {entry['path']!r:.80}"
        if entry["path"] in leaves:
            raise CheckpointError(f"{what} appears twice")
        if entry["offset"] != end:
            raise CheckpointError(f"{what} is at byte {entry['offset']}, expected {end}")
        leaves[entry["path"]] = leaf = _leaf(rest[end:], entry, what)
        end += leaf.nbytes
    if end != len(rest):
        raise CheckpointError(f"its leaves have {end} bytes of {len(rest)}")
    return leaves


def _leaf(rest: memoryview, entry: dict[str, Any], what: str) -> np.ndarray:
    """One array, as a view of the file's bytes; nothing is allocated."""
    shape = entry["shape"]
    if len(shape) > _AXES or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise CheckpointError(f"{what} has the shape {str(shape):.60}")
    try:
        dtype = np.dtype(entry["dtype"])
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{what} has the type {entry['dtype']!r:.40}") from error
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise CheckpointError(f"{what} has the type {entry['dtype']!r:.40}")
    count = math.prod(shape)
    if count * dtype.itemsize > len(rest):
        raise CheckpointError(f"{what} has {count} numbers, more than the file")
    if not count and math.prod(n for n in shape if n) >= 2**31:
        raise CheckpointError(f"{what} has the shape {str(shape):.60}")
    return np.frombuffer(rest, dtype, count).reshape(shape)


def _check_update(path: Path, meta: dict[str, Any], leaves: dict[str, np.ndarray]) -> None:
    """Checks that a file's name, its header and its state agree on the update."""
    if update_of(path) not in (None, meta["update"]):
        raise CheckpointError(f"it is of update {meta['update']}, but its name has another")
    counted = leaves.get("/update")
    if counted is None or counted.shape or counted.dtype.kind not in "iu":
        return
    if int(counted) != meta["update"]:
        raise CheckpointError(f"it is of update {meta['update']}, but its state of {int(counted)}")
