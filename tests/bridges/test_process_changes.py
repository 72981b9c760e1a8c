"""Changes that an environment makes to its process, and things it leaves behind."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from clew.bridges.gymnasium.processes import end_forks, os_exit_raises
from clew.bridges.gymnasium.stream import EnvironmentFault
from clew.bridges.gymnasium.task import gymnasium_task
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from faults.changing import Changing
from slow_cases import fast_only

NAME = f"{Changing.__module__}:Changing"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restores the process after a test."""
    with contextlib.chdir(os.getcwd()):
        yield
    jax.config.update("jax_enable_x64", False)


def test_the_folder_that_the_caller_chose_meanwhile_stays(tmp_path: Path) -> None:
    os.chdir(tmp_path)
    with gymnasium_task(NAME, {"what": "chdir", "when": "reset"}).open(1) as stream:
        stream.reset(seed=0)
        (tmp_path / "chosen").mkdir()
        os.chdir(tmp_path / "chosen")
    assert Path.cwd() == tmp_path / "chosen"


@pytest.mark.parametrize("when", ["build", "reset", "step", "close"])
def test_the_folder_is_as_before(when: str, tmp_path: Path) -> None:
    """After the spaces were read, and when the environments are closed."""
    os.chdir(tmp_path)
    task = gymnasium_task(NAME, {"what": "chdir", "when": when})
    assert Path.cwd() == tmp_path
    with task.open(2, wrappers=WrapperConfig(video_folder="films")) as stream:
        assert task.builder(WrapperConfig(video_folder="films")).video_folder == f"{tmp_path}/films"
        stream.reset()
        stream.step([0, 0])
        assert (Path.cwd() == tmp_path) == (when == "close")
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize("when", ["build", "reset", "step"])
def test_precision_is_put_back_with_a_word(when: str) -> None:
    """It is restored with a warning, before the agent computes anything."""
    says = "has set jax_enable_x64 to True .* it was reset to False"
    with pytest.warns(UserWarning, match=says):
        stream = gymnasium_task(NAME, {"what": "x64", "when": when}).open(2)
        stream.reset()
        assert not jax.config.values["jax_enable_x64"]
        stream.step([0, 0])
    assert not jax.config.values["jax_enable_x64"]
    stream.close()


def test_an_environment_that_ends_the_process_is_a_fault() -> None:
    """It is not the end of the command, whose exit status would be 0."""
    with gymnasium_task(NAME, {"what": "exit", "when": "step"}).open(2) as stream:
        stream.reset()
        with pytest.raises(EnvironmentFault, match="raised in step, 0 steps .*: SystemExit: 0"):
            stream.step([0, 0])
    with pytest.raises(UserError, match=r"called sys.exit\(0\) while it was built"):
        gymnasium_task(NAME, {"what": "exit", "when": "build"})
    gymnasium_task(NAME, {"what": "exit", "when": "close"})


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_fork_ends_as_ever() -> None:
    """A fork is a separate process and may end as it likes."""
    with os_exit_raises():
        pid = os.fork()
        if pid == 0:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_forks_are_ended_and_programs_are_not() -> None:
    """Nor are worker processes, which have an owner."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    program = subprocess.Popen(["sleep", "60"])
    worker = multiprocessing.get_context("spawn").Process(
        target=time.sleep, args=(60,), daemon=True
    )
    worker.start()
    try:
        assert end_forks() == 1
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
        assert program.poll() is None and worker.is_alive()
    finally:
        program.kill()
        program.wait()
        worker.kill()
        worker.join()


ENDING = """
import os, sys, threading, time
from clew import cli
if sys.argv[1] == "fork" and os.fork() == 0:
    time.sleep(60)
if sys.argv[1] == "thread":
    threading.Thread(target=time.sleep, args=(60,), name="simulator").start()
cli.CLOSE_SECONDS = 0.1
cli.main(["envs", "nowhere"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    ("left", "says"),
    fast_only(
        [("fork", "left 1 of its forks running"), ("thread", "left threads running: simulator")],
        ("fork", "left 1 of its forks running"),
    ),
)
def test_what_an_environment_leaves_does_not_keep_a_command(left: str, says: str) -> None:
    """Nor a program that reads its output; the exit status is the command's."""
    words = [sys.executable, "-W", "ignore", "-c", ENDING, left]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=40, check=False)
    assert ended.returncode == 2 and says in ended.stderr and "Traceback" not in ended.stderr


def test_numbers_of_info_are_metrics() -> None:
    """Named numbers are, also from worker processes; in this process all are known anyway."""
    task = gymnasium_task(NAME)
    wrappers = WrapperConfig(metrics=("success", "late"))
    for processes in (0, 2):
        with task.open(2, processes=processes, wrappers=wrappers) as stream:
            assert stream.metric_names == ("return", "length", "success", "late")
            assert stream.reset().metrics["success"].tolist() == [0, 0]
            step = [stream.step([1, 0]) for _ in range(5)][-1]
            assert step.metrics["success"].tolist() == [1, 0]
            assert step.metrics["late"].tolist() == [1, 1]
            assert list(step.numbers) == [{"success": 1, "late": 1}, {"success": 0, "late": 1}]
    with task.open(2) as stream:
        stream.reset()
        step = [stream.step([1, 0]) for _ in range(5)][-1]
        assert step.numbers[1] == {"success": 0, "distance": 1, "late": 1}


def test_a_number_that_info_has_not_is_named() -> None:
    """The error lists existing numbers; settings that name none are refused too."""
    with gymnasium_task(NAME).open(1, wrappers=WrapperConfig(metrics=("sucess",))) as stream:
        stream.reset()
        says = "environment 0 gave a wrong info, 4 steps .* no number 'sucess'; it has 'success'"
        with pytest.raises(EnvironmentFault, match=says):
            for _ in range(5):
                stream.step([1])
    for metrics in (("return",), ("a", "a"), ("",)):
        with pytest.raises(UserError, match="metrics must name different numbers of info"):
            WrapperConfig(metrics=metrics).validate()
