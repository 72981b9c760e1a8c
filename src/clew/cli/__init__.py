"""The command line: one module for each command, imported when the command is used."""

import atexit
import contextlib
import difflib
import importlib
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from clew.bridges.gymnasium.processes import CLOSE_SECONDS, end_forks
from clew.cli.pages import take_large_pages
from clew.errors import StoppedAtOnce, UserError, notes_of, system_error
from clew.output import (
    FailSafeOutput,
    allow_descriptors,
    flush_streams,
    open_missing_streams,
    printable,
    say,
)

COMMANDS = {
    "demo": "train agents with and without memory and plot both, in a minute or two",
    "train": "train agents and record the run, or resume a run (--resume)",
    "evaluate": "play fresh episodes with a run's agents, with greedy and with sampled actions",
    "export": "write a run's policy as files that run without JAX, or verify such files",
    "sweep": "search settings of clew train, and compare the best with the default on fresh seeds",
    "study": "run a published study's grid of models, settings and seeds, or resume it",
    "report": "make a page of studies: scores beside the published ones, figures, tests and claims",
    "watch": "make a video of an episode with the value, the policy and what the agent remembers",
    "inspect": "show what an agent remembers: influence of the past, memory length, probes",
    "runs": "list the runs of a folder",
    "compare": "plot the learning curves of runs, or train several memories and compare them",
    "advise": "recommend memories for a task, from measured results",
    "models": "list the memory models with their costs, or show one with its options",
    "envs": "list the tasks with their options",
    "check": "test that a memory model, or one of your own, obeys the laws",
    "cost": "count what each memory costs, beside published and compiled costs",
    "bench": "measure how fast each memory acts, learns and trains on this machine",
}
"""Every command with its description; its module `clew.cli.<name>` has `main(args)`."""

ENDINGS = (UserError, KeyboardInterrupt, OSError)
"""Exceptions that end a command with one line instead of a traceback."""

TRAINING = ("demo", "study", "sweep", "train")
"""Commands that continue without a reader of their output, so that their work is not lost."""


def main(args: Sequence[str] | None = None) -> None:
    """The command `clew`. Exits with 0, 1 (a finding), 2 (a mistake) or 130 (Ctrl-C)."""
    if args is None and len(sys.argv) > 1:
        take_large_pages(sys.argv[1])
    open_missing_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop_the_command)
    sys.unraisablehook = _unraisable
    atexit.register(_leave)
    code = 130
    with contextlib.suppress(KeyboardInterrupt):
        code = run(list(sys.argv[1:] if args is None else args))
    allow_descriptors()
    _end_what_is_left(code)
    sys.exit(code)


def _end_what_is_left(code: int) -> None:
    """Ends processes and threads that an environment left running, which would delay the exit.

    A thread cannot be ended from outside, so the whole process exits at once.
    """
    if forks := end_forks():
        say(f"warning: an environment left {forks} of its forks running; they were ended")
    deadline = time.monotonic() + CLOSE_SECONDS
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    for thread in others:
        if not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread.name for thread in others if thread.is_alive() and not thread.daemon]
    if left:
        say(f"warning: an environment left threads running: {', '.join(left)}")
        atexit._run_exitfuncs()
        os._exit(code)


def _stop_the_command(number: int, frame: FrameType | None) -> None:
    """Handles Ctrl-C: stops the command while it runs, and does nothing afterwards."""
    while frame is not None and frame.f_code is not _unraisable.__code__:
        if frame.f_code is run.__code__:
            raise StoppedAtOnce
        frame = frame.f_back


def _leave() -> None:
    """Ignores Ctrl-C during the exit, at whose end nothing would handle it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    flush_streams()


def _unraisable(found: Any) -> None:
    """Reports exceptions that Python could not raise, except a Ctrl-C at such a moment."""
    if not isinstance(found.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(found)


def run(args: list[str]) -> int:
    """Runs one command and returns its exit code; mistakes become a line on standard error."""
    try:
        training = args and args[0] in TRAINING
        output = FailSafeOutput(sys.stdout) if training else sys.stdout
        with _plain_warnings(), contextlib.redirect_stdout(output):
            code = dispatch(args)
            print(end="", flush=True)
            return code
    except ENDINGS as error:
        return report_error(error)


def report_error(error: BaseException) -> int:
    """Prints on standard error why a command ended with one of `ENDINGS`; returns its exit code."""
    if isinstance(error, BrokenPipeError):
        return 0  # the reader, such as `head`, has read enough
    if isinstance(error, KeyboardInterrupt):
        say(f"\n{error}" if error.args else "\ninterrupted")
        return 130
    if isinstance(error, OSError):
        say(f"error: {system_error(error)}")
        return 2
    notes = [*notes_of(error), *notes_of(error.__cause__ or Exception())]
    say("\n".join([f"error: {error}", *notes]))
    return 2


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Prints clew's own warnings on one line, without their place in the code."""
    usual, library = warnings.formatwarning, f"{Path(__file__).parents[1]}{os.sep}"

    def one_line(
        message: Warning | str, category: type[Warning], filename: str, *more: Any, **others: Any
    ) -> str:
        if issubclass(category, UserWarning) and filename.startswith(library):
            return f"warning: {printable(str(message))}\n"
        return usual(message, category, filename, *more, **others)

    warnings.formatwarning = one_line
    try:
        yield
    finally:
        warnings.formatwarning = usual


def dispatch(args: list[str]) -> int:
    """Passes the arguments to the command's module; without any, prints the help."""
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    if not args or args[0] in ("-h", "--help"):
        print(help_text())
        return 0
    name, *rest = args
    if name in ("-V", "--version", "version"):
        from importlib.metadata import version  # start: takes 0.03 s

        print(f"clew {version('clew')}")
        return 0
    if name not in COMMANDS:
        raise unknown_command(name)
    return importlib.import_module(f"clew.cli.{name}").main(rest)


def unknown_command(name: str) -> UserError:
    """The error for an unknown command or option, with the nearest ones."""
    kind = "option" if name.startswith("-") else "command"
    near = difflib.get_close_matches(name, COMMANDS, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(f'clew {n}' for n in near)}?" if near else ""
    known = f"commands: {', '.join(COMMANDS)}"
    return UserError(f"unknown {kind} {name!r}; {hint + ' ' if hint else ''}{known}")


def help_text() -> str:
    """The help of `clew` itself."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "clew: memory for reinforcement-learning agents",
            "",
            "usage: clew COMMAND [OPTIONS]     clew COMMAND --help     clew --version",
            "",
            *lines,
            "",
            "New here? `clew demo` needs no options and ends with a picture. Then try",
            "  clew train --memory gru --seeds 3 --name my-first",
            "  clew evaluate my-first",
        ]
    )
