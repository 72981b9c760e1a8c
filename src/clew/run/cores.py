"""Processor cores: how many this process may use, and on how many threads JAX computes."""

import os

THREADS = "NPROC"
"""Variable of XLA: the threads that it computes on, in place of one for each core."""


def available_cores() -> int:
    """Cores that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def use_threads(count: int) -> None:
    """Makes JAX compute on so many threads, if it has not begun to, on whatever cores are free.

    A process that were kept on chosen cores would share them with any other that chose the same.
    """
    os.environ[THREADS] = str(count)
