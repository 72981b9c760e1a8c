"""The command line: one module for each command, imported when the command is used."""

import contextlib
import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clew.cli.pages import take_large_pages
from clew.errors import UserError

COMMANDS = {
    "demo": "see in a minute or two that memory matters: train with one and without, draw both",
    "train": "train agents and record the run; or resume a run (--resume)",
    "evaluate": "play fresh episodes with a run's agents, greedily and as trained",
    "study": "run a published study's grid of models, settings and seeds; go on where it stopped",
    "report": "make one page of studies: tables beside the published ones, figures, tests, floors",
    "watch": "make a video of an episode with value, policy and what the agent remembers",
    "inspect": "show what an agent remembers: influence of the past, memory length, probes",
    "runs": "list the runs of a folder",
    "compare": "draw the learning curves of runs into one picture, with what each reached",
    "models": "list the memory models with their costs, or show one with its options",
    "envs": "list the tasks with their options",
    "check": "run the laws on a memory model, also on one of your own",
    "cost": "count what each memory costs, beside what was published and what is compiled",
    "bench": "measure how fast each memory acts, learns and trains on this machine",
}
"""Every command with what it does; its module `clew.cli.<name>` has `main(args)`."""


def main(args: Sequence[str] | None = None) -> None:
    """The command `clew`: runs and exits, with 0, 1 (a finding), 2 (a mistake) or 130 (Ctrl-C)."""
    if args is None and len(sys.argv) > 1:
        take_large_pages(sys.argv[1])
    sys.exit(run(list(sys.argv[1:] if args is None else args)))


def run(args: list[str]) -> int:
    """Runs one command and returns its exit code; mistakes become a line on standard error."""
    try:
        with _plain_warnings():
            return dispatch(args)
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print(f"\n{interrupt}" if interrupt.args else "\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe; Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Prints clew's own warnings as one line, without their place in the code."""
    usual, library = warnings.formatwarning, f"{Path(__file__).parents[1]}{os.sep}"

    def one_line(
        message: Warning | str, category: type[Warning], filename: str, *more: Any, **others: Any
    ) -> str:
        if issubclass(category, UserWarning) and filename.startswith(library):
            return f"warning: {message}\n"
        return usual(message, category, filename, *more, **others)

    warnings.formatwarning = one_line
    try:
        yield
    finally:
        warnings.formatwarning = usual


def dispatch(args: list[str]) -> int:
    """Hands the arguments to the command's module; without any, prints the help."""
    if not args or args[0] in ("-h", "--help", "help"):
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
            "New here? `clew demo` needs no options and ends with a picture. Then",
            "  clew train --memory gru --seeds 3 --name my-first",
            "  clew evaluate my-first",
        ]
    )
