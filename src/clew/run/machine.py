"""What a run stands on: versions, the source's commit, cores, memory, the cache of programs."""

import contextlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from clew.errors import UserError
from clew.memory.kernels import provenance
from clew.run.programs import keep_programs, programs_folder

if TYPE_CHECKING:
    from clew.run.config import TrainConfig

THREADS = "NPROC"
"""Variable of XLA: the threads that it computes on, in place of one for each core."""


def versions() -> dict[str, str]:
    """The versions of everything that a run's numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("clew", "jax", "jaxlib", "equinox", "optax", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    # Two ways of computing differ in rounding, and a long training tells them apart.
    if provenance():
        found["kernels"] = provenance()
    return found


def available_cores() -> int:
    """Cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def use_threads(count: int) -> None:
    """Makes JAX compute on so many threads, if it has not begun to, on whatever cores are free.

    A process that were kept on chosen cores would share them with any other that chose the same.
    """
    os.environ[THREADS] = str(count)


def threads_used() -> int:
    """Threads that JAX computes on, on a processor."""
    given = os.environ.get(THREADS, "")
    return int(given) if given.isdigit() else available_cores()


def other_machine(what: str, before: int, now: int) -> str:
    """A line for a run that is resumed with another number of something that computes."""
    return (
        f"{what}: {before} until now, {now} from here on; the results are those of {before} up to "
        "rounding, not bit for bit"
    )


def physical_memory() -> int:
    """Bytes of this machine's memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def planned_bytes(compiled: Any) -> int:
    """Bytes that a compiled program holds at once: arguments, results and everything between.

    This is XLA's own plan of its buffers, exact for the program. The process itself needs more:
    Python, the libraries and the compiler, some hundred MB that no memory model is to blame for
    and that a process's highest resident size would mix in.
    """
    plan = compiled.memory_analysis()
    whole = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return whole - plan.alias_size_in_bytes


def require_memory(needed: int, what: str) -> None:
    """Refuses what takes more memory than this machine has, where programs compute on processors.

    Args:
        needed: bytes, or fewer than it will be.
        what: that needs them, for the message.

    Raises:
        UserError: saying how much is needed and how much there is.
    """
    there = physical_memory()
    if there and needed > there and jax.default_backend() == "cpu":
        raise UserError(
            f"these settings need at least {needed / 1e9:,.1f} GB of memory, but this machine has "
            f"{there / 1e9:,.1f} GB: {what}"
        )


def require_room(config: "TrainConfig", compiled: Any) -> None:
    """Refuses a program that holds more than this machine's memory, before it runs.

    Raises:
        UserError: saying how much it needs and how much there is.
    """
    learning = config.learning
    require_memory(
        max(1, config.devices) * planned_bytes(compiled),
        f"so much the compiled program holds at once, for {config.seeds:,} seeds x "
        f"{learning.num_envs:,} num_envs x {learning.rollout_length:,} steps",
    )


def git_commit() -> str | None:
    """The commit of the checkout that this library runs from, "+" if files differ; else None."""
    here = Path(__file__).resolve().parent
    root = here.parents[2]
    if not (root / ".git").exists():
        return None
    try:
        run = [
            subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10
            )
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "-uno"))
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    if run[0].returncode:
        return None
    return run[0].stdout.strip() + ("+" if run[1].stdout.strip() else "")


def use_compilation_cache() -> None:
    """Keeps compiled programs for the next process, in `clew.run.programs.programs_folder`.

    Does nothing where the user has given JAX another folder, or the folder cannot be used.
    """
    if jax.config.values["jax_compilation_cache_dir"]:
        return
    folder = programs_folder()
    if folder is not None:
        keep_programs(str(folder))
