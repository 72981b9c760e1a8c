"""Faults in an actor are reported and survived; a fault that cannot be survived ends everything."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.interact.task import HostConfig
from clew.run.asynchronous.pool import ActorRollout
from clew.run.asynchronous.processes import ProcessPool
from clew.run.asynchronous.program import AsyncProgram
from clew.run.build import make_parts
from clew.run.updates import RunState, init_run
from small_async import arrays, async_config, order

TIMEOUT = 3.0


class Run:
    """A run in progress into which troubles can be injected."""

    def __init__(self, folder: Path, restarts: int, **changes: Any):
        self.script = folder / "script"
        config = async_config(
            env="labelled:Scripted",
            env_options={"script": str(self.script)},
            host=HostConfig(timeout=TIMEOUT, restarts=restarts),
            **changes,
        )
        self.told: list[str] = []
        parts = make_parts(config)
        self.program = AsyncProgram(parts, parts.task, self.told.append)
        self.state: RunState = init_run(parts)
        self.updates = 0

    @property
    def pool(self) -> ProcessPool:
        """The actors."""
        assert isinstance(self.program._pool, ProcessPool)
        return self.program._pool

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [running.process.pid or 0 for running in self.pool._running]

    def go_on(self, updates: int = 1) -> None:
        """Makes updates, and checks the data that they learn from."""
        self.state = self.program(self.state, jnp.int32(updates))
        self.updates += updates
        assert int(self.state.update) == self.updates

    def watch(self) -> None:
        """Checks every rollout from now on."""
        take = self.pool.take

        def looked_at(count: int) -> list[ActorRollout]:
            rollouts = take(count)
            for rollout in rollouts:
                assert_whole(rollout)
            return rollouts

        self.pool.take = looked_at

    def inject(self, trouble: str) -> None:
        """Injects a trouble, and continues until it is reported, and for two updates more."""
        before = len(self.told)
        if trouble in ("SIGKILL", "SIGSTOP"):
            place = self.updates % 2
            while not self.pool._running[place].heartbeat.seen()[2]:
                self.go_on()  # an actor that compiles may take long
            os.kill(self.pids[place], getattr(signal, trouble))
        else:
            order(self.script, trouble)
        while len(self.told) == before:
            self.go_on()
        self.go_on(2)
        assert len(self.told) == before + 1


def assert_whole(rollout: ActorRollout) -> None:
    """Checks that every observation follows the one before, or opens an episode."""
    seen = rollout.gathered.acted.experience
    step = seen.observation[:, :, 1]
    follows = np.where(seen.start[1:], step[1:] == 0, step[1:] == step[:-1] + 1)
    assert follows.all()
    assert np.isfinite(seen.log_prob).all() and np.isfinite(seen.value).all()


def exists(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pids: list[int], seconds: float = 10.0) -> None:
    """Waits until none of the processes is left."""
    deadline = time.monotonic() + seconds
    while left := [pid for pid in pids if exists(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def shared_files() -> set[str]:
    """The actors' files in shared memory."""
    return {path.name for path in Path("/dev/shm").glob("pym*")}


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Checks that a test leaves no new files in shared memory."""
    before = shared_files()
    yield
    assert shared_files() <= before


SAYS = {
    "raise": "actor [01]: labelled:Scripted: environment [01] raised in step, 1 steps into",
    "die": "actor [01]: labelled:Scripted: environment [01] raised in step, .*: SystemExit: 3;",
    "hang": "labelled:Scripted: actor [01] hangs: its environment [01] gave no sign of life within",
    "SIGKILL": r"labelled:Scripted: actor [01] ended \(exit code -9\); restarted",
    "SIGSTOP": "labelled:Scripted: actor [01] hangs: .*gave no sign of life within 3 s; restarted",
}


def survive(folder: Path, troubles: list[str]) -> None:
    """Injects all of these troubles into a run, which must continue."""
    run = Run(folder, restarts=len(troubles))
    try:
        run.go_on()
        run.watch()
        began = run.pids
        for number, trouble in enumerate(troubles):
            run.inject(trouble)
            told = run.told[number]
            assert re.search(SAYS[trouble], told), told
            assert f"({number + 1} of at most {len(troubles)} times)" in told
        pids = run.pids
    finally:
        run.program.close()
    wait_until_gone([*began, *pids])


def test_faults_are_named_and_survived(tmp_path: Path, nothing_left: None) -> None:
    """An environment that raises, and an actor that is killed."""
    survive(tmp_path, ["raise", "SIGKILL", "raise"])


@pytest.mark.slow
@pytest.mark.parametrize("trouble", SAYS)
def test_twenty_faults_are_survived(tmp_path: Path, nothing_left: None, trouble: str) -> None:
    """Of each kind."""
    survive(tmp_path, [trouble] * 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ("nan observation", "actor [01]: .*gave nan in its observation, 1 steps into its episode"),
        ("raise", "actor [01]: .*raised in step"),
    ],
)
def test_what_is_not_survived_ends_the_run(
    tmp_path: Path, nothing_left: None, trouble: str, says: str
) -> None:
    """NaN or infinity ends it at once, other faults when there are too many of them."""
    run = Run(tmp_path, restarts=0 if trouble == "raise" else 9)
    try:
        run.go_on()
        pids = run.pids
        with pytest.raises(EnvironmentFault, match=says):
            run.inject(trouble)
        assert run.told == []
        assert all(np.isfinite(x).all() for x in arrays(run.program.state))
        assert int(run.program.state.update) >= run.updates
    finally:
        run.program.close()
    wait_until_gone(pids)
