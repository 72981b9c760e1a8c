"""The machine of a run: versions, the source's commit, cores, RAM, the compilation cache."""

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
"""Environment variable of XLA: its number of threads, instead of one for each core."""


def versions() -> dict[str, str]:
    """The versions of everything that a run's numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("clew", "jax", "jaxlib", "equinox", "optax", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    # Different kernels differ in rounding, which changes the results of a long training.
    if provenance():
        found["kernels"] = provenance()
    return found


def available_cores() -> int:
    """Cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def use_threads(count: int) -> None:
    """Makes JAX compute on `count` threads, on any cores, if it has not yet begun to compute.

    Processes pinned to chosen cores would share them if they chose the same.
    """
    os.environ[THREADS] = str(count)


def threads_used() -> int:
    """The number of threads that JAX computes on, on a CPU."""
    given = os.environ.get(THREADS, "")
    return int(given) if given.isdigit() else available_cores()


def other_machine(what: str, before: int, now: int) -> str:
    """A line for a run that is resumed with another number of threads or devices."""
    return (
        f"{what}: {before} until now, {now} from here on; the results are those of {before} up to "
        "rounding, not bit for bit"
    )


def physical_memory() -> int:
    """Bytes of this machine's RAM; 0 if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def planned_bytes(compiled: Any) -> int:
    """Bytes that a compiled program holds at once: arguments, results and temporaries.

    This is XLA's own buffer plan, exact for the program. The process itself needs more for Python,
    the libraries and the compiler: some hundred MB that do not depend on the memory model, and that
    the peak resident size of a process would include.
    """
    plan = compiled.memory_analysis()
    whole = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    return whole - plan.alias_size_in_bytes


def require_memory(needed: int, what: str) -> None:
    """Refuses settings that need more RAM than this machine has, if programs run on CPUs.

    Args:
        needed: a lower bound in bytes.
        what: the things that need them, for the message.

    Raises:
        UserError: with the RAM that is needed and available.
    """
    there = physical_memory()
    if there and needed > there and jax.default_backend() == "cpu":
        raise UserError(
            f"these settings need at least {needed / 1e9:,.1f} GB of memory, but this machine has "
            f"{there / 1e9:,.1f} GB: {what}"
        )


def require_room(config: "TrainConfig", compiled: Any) -> None:
    """Refuses a program that needs more RAM than this machine has, before it runs.

    Raises:
        UserError: with the RAM that is needed and available.
    """
    learning = config.learning
    require_memory(
        max(1, config.devices) * planned_bytes(compiled),
        f"the compiled program holds that much at once, for {config.seeds:,} seeds x "
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
    """Caches compiled programs for later processes, in `clew.run.programs.programs_folder`.

    Does nothing if the user has given JAX another folder, or if the folder cannot be used.
    """
    if jax.config.values["jax_compilation_cache_dir"]:
        return
    folder = programs_folder()
    if folder is not None:
        keep_programs(str(folder))
