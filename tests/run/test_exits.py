"""How a training ends, and what does not end it: unread output, signals, a killed trainer."""

import io
import os
import pty
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
from rich.console import Console

import clew.cli
from clew.bridges.gymnasium.processes import stopping_signals
from clew.cli.live import Live
from clew.lab.grid.progress import StudyLines
from clew.output import FailSafeOutput, allow_descriptors, fail_safe
from clew.run.progress import Lines, Report
from clew.run.runner import stop_signals
from small_run import TINY, small_config

REPORT = Report(steps=8, total_steps=8, rate=1.0, seconds=1.0, seconds_left=0.0, row=None)


def without_a_reader() -> TextIO:
    """The writing end of a pipe whose reader has gone, as after `head`."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w", buffering=1)


def on_a_full_disk() -> TextIO:
    """A file on a full disk."""
    require_full_device()
    return open("/dev/full", "w", buffering=1)


def require_full_device() -> None:
    """Skips a test on a system, such as macOS, without a device that is always full."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")


def closed() -> TextIO:
    """A file that is closed."""
    stream = io.StringIO()
    stream.close()
    return stream


def of_a_gone_terminal() -> TextIO:
    """A terminal whose window was closed."""
    master, slave = pty.openpty()
    os.close(master)
    return open(slave, "w", buffering=1)


BROKEN = (without_a_reader, on_a_full_disk, closed, of_a_gone_terminal)


def drop(stream: Any) -> None:
    """Closes a stream that still buffers unwritable output."""
    try:
        stream.close()
    except (OSError, ValueError):
        pass


@pytest.mark.parametrize("broken", BROKEN)
def test_listeners_fall_silent(broken: Callable[[], TextIO], tmp_path: Path) -> None:
    """This holds for every listener, on every kind of unwritable output."""
    stream = broken()
    config = small_config(tmp_path, "[/red] [bold")
    console = Console(file=fail_safe(stream), force_terminal=True)
    for listener in (Lines(0.0, stream), Live(console)):
        listener.start(tmp_path / "[/red] [bold", config)
        listener.phase("compiling")
        listener.report(REPORT)
        listener.message("a [/red] message")
        listener.close()
    StudyLines(0.0, stream).message("a [/red] message")
    drop(stream)


def test_brackets_are_no_markup(tmp_path: Path) -> None:
    """In a run's name or in a fault's message, on a terminal."""
    said = io.StringIO()
    live = Live(Console(file=fail_safe(said), force_terminal=True, width=200), "[/red] [bold")
    live.start(tmp_path / "[/red]", small_config(tmp_path))
    live.phase("compiling")
    live.phase("training")
    live.report(REPORT)
    live.message("KeyError: '[/red]' [0/5]")
    live.close()
    assert "KeyError: '[/red]' [0/5]" in said.getvalue()
    assert "[/red] [bold" in said.getvalue() and "-> " in said.getvalue()
    assert "compiled in 0s" in said.getvalue()


def test_output_is_what_was_written() -> None:
    """Characters outside the stream's encoding are escaped; without a stream output is dropped."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print("2 µs", file=FailSafeOutput(stream), flush=True)
    assert raw.getvalue() == b"2 \\xb5s\n"
    assert not FailSafeOutput(None).isatty()
    print("nothing", file=FailSafeOutput(None), flush=True)
    with pytest.raises(OSError):
        FailSafeOutput(None).fileno()


def test_training_goes_on_without_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches its end, with everything saved and exit code 0."""
    with monkeypatch.context() as patch:
        streams = without_a_reader(), on_a_full_disk()
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        code = clew.cli.run(["train", *TINY.split(), "--name", "mute", "--run-dir", str(tmp_path)])
    assert code == 0
    assert (tmp_path / "mute" / "summary.json").exists()
    for stream in streams:
        drop(stream)


def test_an_end_without_descriptors() -> None:
    """Temporary files that could not be opened can be again, and multiprocessing removes them."""
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        allow_descriptors()
        os.close(os.open(os.devnull, os.O_RDONLY))
        if hard != resource.RLIM_INFINITY:
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard >= soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_an_end_with_an_infinite_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, which refuses an infinite soft limit, and one above its own."""
    infinite = resource.RLIM_INFINITY

    def refuse(what: int, limits: tuple[int, int]) -> None:
        assert limits == (320, infinite)
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda what: (256, infinite))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    allow_descriptors()


@pytest.mark.parametrize(
    ("redirection", "code", "says"),
    [
        (">/dev/full", 2, "error: No space left on device\n"),
        (">/dev/full 2>/dev/full", 2, ""),
        (">&- 2>&- <&-", 0, ""),
        ("| true", 0, ""),
    ],
)
def test_other_commands_end_quietly(redirection: str, code: int, says: str) -> None:
    """Their output is all they do: they print one line if there is something to say."""
    if "/dev/full" in redirection:
        require_full_device()
    shell = f'set -o pipefail; sleep 0.1; "{sys.executable}" -m clew --help {redirection}'
    ran = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (code, says)


@pytest.mark.usefixtures("default_signals")
def test_which_signals_stop() -> None:
    """All those of a terminal or a scheduler, even several times; Ctrl-C twice stops at once."""
    with stop_signals() as stop:
        assert not stop.is_set()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
            assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with stop_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert stopping_signals() == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


HANGING = """
import os, sys
sys.path.insert(0, {tests!r})
from clew.bridges.gymnasium.task import gymnasium_task
from multiprocessing.forkserver import _forkserver
if __name__ == "__main__":
    stream = gymnasium_task("labelled:Troubled", {{"trouble": {trouble!r}}}).open(4, processes=2)
    stream.reset(0)
    pids = [process.pid for process in stream.vector.processes]
    stream.step([0, 0, 0, 0])
    stream.step_async([1, 1, 1, 1])
    servers = [_forkserver._forkserver_pid] if _forkserver._forkserver_pid else []
    print(*pids, *servers, flush=True)
    if {ends!r}:
        sys.exit()
    stream.step_wait()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files; its path is short, as sockets require."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "ends"),
    [
        pytest.param("hang", False, marks=pytest.mark.slow),
        ("spin", False),
        pytest.param("hang", True, marks=pytest.mark.slow),
    ],
)
def test_hanging_environments_end_with_their_trainer(
    trouble: str, ends: bool, tmp_path: Path, temporary: Path
) -> None:
    """Whether it is killed, or ends without closing them: no process and no file stays."""
    script = tmp_path / "trainer.py"
    tests = str(Path(__file__).parents[1])
    script.write_text(HANGING.format(tests=tests, trouble=trouble, ends=ends))
    trainer = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    pids = [int(word) for word in trainer.stdout.readline().split()]
    assert len(pids) == (3 if sys.platform == "linux" else 2)
    if not ends:
        trainer.kill()
    trainer.communicate(timeout=20)
    wait_until(lambda: not any(map(is_running, pids)), "processes are left")
    assert sys.platform != "linux" or not list(temporary.iterdir())


def wait_until(true: Callable[[], bool], otherwise: str) -> None:
    """Waits, at most ten seconds."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def is_group(number: int) -> bool:
    """Whether a process group still has a process."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # no such file: it has just ended, or this is not Linux
        return True


TRAINER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from small_async import run_dir
from clew.output import flush_streams
from clew.cli import main
import clew, clew.run.train
if __name__ == "__main__":
    config = run_dir(Path({folder!r}), steps=10**9, runner={runner!r}, log_every=1)
    clew.cli.dispatch = lambda args: clew.run.train.train(config) and 0
    sys.argv = ["clew", "bench"]
    main()
"""


@pytest.mark.usefixtures("default_signals")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "numbers"),
    [
        ("sync", (signal.SIGTERM,) * 2),
        ("async", (signal.SIGHUP, signal.SIGTERM)),
        ("sync", (signal.SIGINT,) * 40),
        ("async", (signal.SIGINT,) * 40),
    ],
)
def test_signals_to_the_whole_group(
    runner: str, numbers: tuple[signal.Signals, ...], tmp_path: Path
) -> None:
    """As from Slurm and containers: saved, no fault counted, nothing left, no traceback."""
    script = tmp_path / "trainer.py"
    tests = str(Path(__file__).parents[1])
    script.write_text(TRAINER.format(tests=tests, folder=str(tmp_path), runner=runner))
    run = [sys.executable, str(script)]
    trainer = subprocess.Popen(run, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert trainer.stderr is not None
    said = ""
    while "steps/s" not in said:
        said = trainer.stderr.readline()
        assert said, "ended before its first update"
    for number in numbers:
        if trainer.poll() is None:
            os.killpg(trainer.pid, number)
            time.sleep(0.02)
    said += trainer.communicate(timeout=60)[1]
    # A signal after saving, when the handlers are gone, ends the process as usual, except Ctrl-C,
    # which then has nothing to stop.
    assert trainer.returncode in (130, *(-n for n in numbers if n != signal.SIGINT))
    assert "Traceback" not in said and "of at most" not in said
    if len(numbers) < 40:
        assert "everything is saved" in said
    wait_until(lambda: not is_group(trainer.pid), "processes are left")
