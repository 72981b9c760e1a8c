"""The cache of compiled programs: intact entries of this user are read, all else is replaced."""

import os
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from clew.run.programs import Programs, keep_programs, programs_folder

KEY, PROGRAM = "jit_step-0", b"program" * 99
DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, 40),
    "empty": lambda path: os.truncate(path, 0),
    "flip": lambda path: path.write_bytes(b"P" + path.read_bytes()[1:]),
    "sparse": lambda path: os.truncate(path, 2**35),
    "others": lambda path: path.chmod(0o666),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "link": lambda path: (path.unlink(), path.symlink_to(path.parent.parent / "elsewhere")),
    "JAX's": lambda path: path.write_bytes(PROGRAM),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_program_is_compiled_again(how: str, tmp_path: Path) -> None:
    """It is intact from then on, without a message."""
    folder = tmp_path / "programs"
    folder.mkdir()
    cache = Programs(folder)
    assert cache.get(KEY) is None
    cache.put(KEY, PROGRAM)
    (path,) = folder.iterdir()
    DAMAGES[how](path)
    assert cache.get(KEY) is None
    cache.put(KEY, PROGRAM)
    assert cache.get(KEY) == PROGRAM and list(folder.iterdir()) == [path]
    assert not (tmp_path / "elsewhere").exists()


def test_a_program_is_of_its_key_alone(tmp_path: Path) -> None:
    cache = Programs(tmp_path)
    cache.put(KEY, PROGRAM)
    (tmp_path / f"{KEY}-cache").rename(tmp_path / "jit_other-1-cache")
    assert cache.get("jit_other-1") is None


def test_what_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    """Such as a folder in its place, which clew does not remove, or a path that is no folder."""
    cache = Programs(tmp_path)
    (tmp_path / f"{KEY}-cache").mkdir()
    cache.put(KEY, PROGRAM)
    assert cache.get(KEY) is None and len(list(tmp_path.iterdir())) == 1
    Programs(tmp_path / "none").put(KEY, PROGRAM)


def test_a_folder_of_others_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEW_CACHE_DIR", str(tmp_path))
    folder = programs_folder()
    assert folder == tmp_path / "programs"
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write to .*programs .*mode 777"):
        assert programs_folder() is None
    monkeypatch.setenv("CLEW_CACHE_DIR", "/dev/null")
    assert programs_folder() is None


def test_jax_keeps_its_programs_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through its own interface of caches; other folders keep JAX's behaviour."""
    monkeypatch.setenv("CLEW_CACHE_DIR", str(tmp_path))
    before, folder = jax.config.values["jax_compilation_cache_dir"], programs_folder()
    seconds = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    try:
        keep_programs(str(folder))
        jax.jit(lambda x: x * 3.25 - 17)(2.0)
        keys = [path.name.removesuffix("-cache") for path in (tmp_path / "programs").iterdir()]
        assert keys and all(Programs(tmp_path / "programs").get(key) for key in keys)
    finally:
        keep_programs(before, seconds)
