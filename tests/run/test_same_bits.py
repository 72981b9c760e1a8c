"""The numbers of a training depend on its settings, seed and devices, and on nothing else."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import clew
from clew.run import compiled
from small_run import Watch, assert_same_run, small_config

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
from pathlib import Path
import clew
from clew.run.progress import Quiet
from small_run import small_config
clew.train(small_config(Path(sys.argv[1]), sys.argv[2]), progress=Quiet())
"""


def train(folder: Path, name: str, **changes: object) -> Path:
    """A run of a freshly compiled program in this process."""
    compiled._COMPILED.clear()
    return clew.train(small_config(folder, name, **changes), progress=Watch()).path


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, trained by a process that has done nothing else."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run(
        [sys.executable, "-c", SCRIPT, folder, "fresh"], check=True, cwd=Path(__file__).parents[1]
    )
    return folder / "fresh"


def another_training(folder: Path) -> None:
    """Trains another memory, and the same one with another number of environments."""
    train(folder, "lstm", memory="lstm", seeds=1)
    train(folder, "wider", a2c=clew.A2CConfig(num_envs=16, rollout_length=16))


def an_export(folder: Path) -> None:
    """Exports a policy of the same network."""
    clew.export(train(folder, "exported", steps=1024), folder / "policy")


def a_check(folder: Path) -> None:
    """Checks the laws of the same memory."""
    clew.check(clew.load(train(folder, "checked", steps=1024, seeds=1)).memory)


@pytest.mark.parametrize("before", [another_training, an_export, a_check])
def test_what_a_process_did_before_changes_no_bit(
    before: Callable[[Path], None], tmp_path: Path, fresh: Path
) -> None:
    before(tmp_path)
    assert_same_run(train(tmp_path, "after"), fresh)


def test_two_threads_of_the_callers_change_no_bit(tmp_path: Path, fresh: Path) -> None:
    compiled._COMPILED.clear()
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(train, tmp_path, name) for name in ("one", "two")]
        for run in runs:
            assert_same_run(run.result(), fresh)
