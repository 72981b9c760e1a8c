"""The files of an export: a folder, and the same as one zip."""

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clew.deploy import runner
from clew.errors import UserError
from clew.files import write_file

MANIFEST = "manifest.json"
_WHEN = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a zip, so that the same export is the same bytes."""


def is_export(path: str | Path) -> bool:
    """Whether a path looks like an export: a zip, or a folder with a manifest."""
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
        folder: made if it is not there; an export in it is replaced.
        files: the bytes of all files but the manifest.
        manifest: gets the digests of the files.

    Returns:
        The zip.

    Raises:
        UserError: something else is in the folder, or it cannot be written to.
    """
    if folder.exists() and not is_export(folder) and any(folder.iterdir()):
        raise UserError(f"{folder} already exists and is not an export")
    manifest = manifest | {"files": {name: digest(data) for name, data in files.items()}}
    text = json.dumps(manifest, indent=2, allow_nan=False) + "\n"
    everything = {MANIFEST: text.encode(), **files}
    place = folder.with_name(f"{folder.name}.zip")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in everything.items():
            write_file(folder / name, [data])
        for left in set(_KNOWN) - set(everything):
            (folder / left).unlink(missing_ok=True)
        write_file(place, [zipped(everything)])
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from error
    return place


_KNOWN = (*runner.FILES, "runner.py", "policy.hpp", "policy.onnx")
"""Files that an export may have; those of an earlier one are removed."""


def check_all(path: Path) -> dict[str, bytes]:
    """Checks the digest of every file that a manifest names; their bytes by name.

    Raises:
        UserError: a file is missing or was changed.
    """
    named = runner.read_manifest(runner.read_export(path))["files"]
    for name in set(named) - set(_KNOWN):
        raise UserError(f"{path}: {name!r:.40} does not belong to an export")
    if path.is_dir():
        data = {n: (path / n).read_bytes() for n in named if (path / n).is_file()}
    else:
        with zipfile.ZipFile(path) as whole:
            data = {n: whole.read(n) for n in named if n in whole.namelist()}
    for name, said in named.items():
        if name not in data:
            raise UserError(f"{path}: {name!r:.40} is missing")
        if digest(data[name]) != said:
            raise UserError(f"{path}: {name} was changed: its SHA-256 is not the manifest's")
    return data
