"""How much is compared, and where subjects run."""

from typing import NamedTuple, Protocol

from clew.lab.bench.peers.worker import Asked


class Plan(NamedTuple):
    """How much to measure."""

    lengths: tuple[int, ...] = (64, 256, 1024, 2048, 4096, 8192)
    """of chunks"""
    width: int = 128
    envs: int = 4
    """environments that learn side by side"""
    actors: int = 8
    """environments that act side by side"""
    rounds: int = 6
    """turns of every subject at every point"""
    turn: float = 0.1
    """seconds of a turn at least, in as many calls as that takes"""
    bytes_limit: int = 6 * 2**30
    """a subject that would hold more than this is not run"""
    seconds_limit: float = 6.0
    """a subject whose one call takes longer is not measured further"""


QUICK = Plan(lengths=(8, 32), width=16, envs=2, actors=2, rounds=2, turn=0.005)
"""Enough to see that everything works; its figures are none to quote."""


class Library(Protocol):
    """Where the subjects run."""

    def of(self, subject: str) -> Asked:
        """Whoever answers for a subject."""
        ...
