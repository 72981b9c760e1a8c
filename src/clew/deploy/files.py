"""The files of an export: a folder, and a zip of the same files."""

import contextlib
import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clew.deploy import runner
from clew.errors import UserError, system_error
from clew.files import write_file

MANIFEST = "manifest.json"
_WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a zip, so that equal exports have equal bytes."""


def is_export(path: str | Path) -> bool:
    """Whether a path looks like an export: a zip, or a folder with a manifest."""
    if not isinstance(path, str | os.PathLike):
        return False
    path = Path(path)
    return (path / MANIFEST).is_file() or (path.suffix == ".zip" and path.is_file())


def safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A file of arrays in the safetensors format, which `runner.read_tensors` describes."""
    kinds = {numpy: name for name, numpy in runner.TYPES.items()}
    header, blocks, end = {}, [], 0
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        block = little.tobytes()
        offsets = [end, end + len(block)]
        kind = kinds[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        blocks.append(block)
        end += len(block)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at a multiple of 8 bytes
    return b"".join([struct.pack("<Q", len(text)), text, *blocks])


def archive(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A compressed .npz of arrays, the same bytes for the same arrays."""
    members = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
        members[f"{name}.npy"] = file.getvalue()
    return zipped(members)


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip of files by name, the same bytes for the same files."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(zipfile.ZipInfo(name, _WHEN), data, zipfile.ZIP_DEFLATED)
    return whole.getvalue()


def digest(data: bytes) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(data).hexdigest()


def write_export(folder: Path, files: Mapping[str, bytes], manifest: dict[str, Any]) -> Path:
    """Writes an export's folder and, beside it, the zip of the same name.

    Args:
        folder: made if missing. An export in it is replaced together with its zip, if their files
            were not changed since.
        files: the bytes of all files except the manifest.
        manifest: gets the digests of the files.

    Returns:
        The zip.

    Raises:
        UserError: a file that is not from an export would be replaced, or the folder cannot be
            written to.
    """
    manifest = manifest | {"files": {name: digest(data) for name, data in files.items()}}
    text = json.dumps(manifest, indent=2, allow_nan=False) + "\n"
    everything = {MANIFEST: text.encode(), **files}
    if not folder.name.strip("."):
        folder = folder.resolve()
    place = folder.parent / f"{folder.name}.zip"
    try:
        for path in _in_the_way(folder, place, everything):
            raise UserError(
                f"{path} already exists and is not from an export to {folder}, or was changed: "
                "move it away, or choose another output"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for path in (place, *(folder / name for name in set(runner.MOST_BYTES) - set(everything))):
            path.unlink(missing_ok=True)
        for name, data in reversed(everything.items()):  # the old manifest is replaced last
            write_file(folder / name, [data])
        write_file(place, [zipped(everything)])
    except OSError as error:
        raise UserError(f"cannot write {folder}: {system_error(error)}") from error
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"no folder has the name {str(folder)!r}: {error}") from error
    return place


def _in_the_way(folder: Path, place: Path, everything: Mapping[str, bytes]) -> Iterator[Path]:
    """Files here that are not from an export, or were changed since.

    A file is recognised by its digest: that in the manifest beside it, or that of the new file,
    which an export that was killed may have written. The zip must belong to one of the two.
    """
    said, coming = _digests(folder), {name: digest(data) for name, data in everything.items()}
    if os.path.lexists(folder) and not folder.is_dir():
        yield folder
    elif folder.is_dir():
        there = {path.name for path in folder.iterdir() if not path.name.endswith(".writing")}
        known = [name for name in runner.MOST_BYTES if name in there]
        if there and not known:
            yield folder
        for name in known:
            if _digest_of(folder, name) not in (said.get(name), coming.get(name)):
                yield folder / name
    if os.path.lexists(place) and not any(_is_zip_of(place, one) for one in (said, coming)):
        yield place


def _digests(path: Path) -> dict[str, str]:
    """The digests of an export's files, including the manifest; empty if there is no export."""
    try:
        data = b"".join(runner.read_blocks(path, MANIFEST))
        return {MANIFEST: digest(data), **runner.parse_manifest(data)["files"]}
    except runner.PolicyError:
        return {}


def _digest_of(path: Path, name: str) -> str | None:
    """Digest of a file of an export; None for a link or an unreadable file."""
    try:
        if (path / name).is_symlink():
            return None
        whole = hashlib.sha256()
        for block in runner.read_blocks(path, name):
            whole.update(block)
        return whole.hexdigest()
    except runner.PolicyError:
        return None


def _is_zip_of(place: Path, digests: Mapping[str, str]) -> bool:
    """Whether it is a zip of exactly the files with these digests."""
    if place.is_symlink() or not place.is_file():
        return False
    with (
        contextlib.suppress(runner.PolicyError),
        runner.reading("the zip cannot be read"),
        runner.open_zip(io.FileIO(place)) as archive,
    ):
        names = archive.namelist()
        return set(names) == set(digests) and all(_digest_of(place, n) == digests[n] for n in names)
    return False


def check_all(path: Path, keep: Mapping[str, int]) -> dict[str, bytes]:
    """Checks the digest of every file that a manifest names.

    Args:
        path: of the export.
        keep: files to return besides `runner.FILES`, with the most bytes of each.

    Returns:
        The bytes by name.

    Raises:
        UserError: a file was changed, or is not from an export.
        PolicyError: a file is missing, damaged or too large.
    """
    keep = {**keep, **{name: runner.MOST_BYTES[name] for name in runner.FILES}}
    data = {MANIFEST: b"".join(runner.read_blocks(path, MANIFEST))}
    for name, said in runner.parse_manifest(data[MANIFEST])["files"].items():
        whole, blocks, size, most = hashlib.sha256(), [], 0, keep.get(name, 0)
        for block in runner.read_blocks(path, name):
            whole.update(block)
            size += len(block)
            if size <= most:
                blocks.append(block)
        if whole.hexdigest() != said:
            raise UserError(f"{path}: {name} was changed: its SHA-256 is not the manifest's")
        if size <= most:
            data[name] = b"".join(blocks)
    return data
