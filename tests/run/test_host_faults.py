"""Faults in an environment are reported and never block, and the stream can be closed."""

import contextlib
import gc
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import forkserver, heap, resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper

from clew.bridges.gymnasium.grouped import GroupedEnvs
from clew.bridges.gymnasium.processes import close_quietly, start_method, stopping_signals
from clew.bridges.gymnasium.stream import EnvironmentFault, EnvironmentHung, GymnasiumStream
from clew.bridges.gymnasium.task import gymnasium_task
from clew.errors import UserError, notes_of
from clew.run.runner import stop_signals
from labelled import Labelled, Misfit, Troubled, makers

NAME = "labelled:Troubled"


def opened(trouble: str, processes: int, **options: Any) -> GymnasiumStream:
    """Four environments that fail in the second step with an action 1."""
    task = gymnasium_task(NAME, {"trouble": trouble, **options})
    return task.open(4, processes=processes, seed=0)


def own(stream: GymnasiumStream) -> GroupedEnvs:
    """The stream's vector environment, which is clew's own."""
    assert isinstance(stream.vector, GroupedEnvs)
    return stream.vector


def provoke(stream: GymnasiumStream, timeout: float | None = None) -> None:
    """Two steps, the second of which makes environment 2 fail."""
    stream.reset()
    stream.step([0, 0, 0, 0])
    stream.step([0, 0, 1, 0], timeout)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(
    ("trouble", "field", "says"),
    [
        ("raise", "step", "raised in step, 1 steps into its episode: RuntimeError: 100% broken"),
        ("unpicklable", "step", "cannot be pickled"),
        ("exit", "step", "SystemExit: no more mazes"),
        (
            "shape",
            "observation",
            r"gave a wrong observation, 1 steps .*: observation has shape \(2,\), its space is Box",
        ),
        ("nothing", "observation", r"observation is None, its space is Box\(-inf, inf, \(3,\)"),
        ("four", "answer", "step returned 4 values, expected 5: observation, reward, terminated,"),
        ("no reward", "reward", "reward is 'nothing', expected a number"),
        ("nan observation", "observation", "gave nan in its observation, 1 steps into its episode"),
        ("inf reward", "reward", "gave inf in its reward, 1 steps into its episode"),
    ],
)
def test_a_fault_is_named(trouble: str, field: str, says: str, processes: int) -> None:
    """Environment, index, step and field are on one line; its own traceback is a note.

    A reset repairs it.
    """
    with opened(trouble, processes) as stream:
        with pytest.raises(EnvironmentFault, match=f"{NAME}: environment 2 .*{says}") as caught:
            provoke(stream)
        fault = caught.value
        assert isinstance(fault, UserError)
        assert (fault.env, fault.index, fault.episode_step) == (NAME, 2, 1)
        assert fault.field == field and not fault.lost
        number = says.startswith(("gave nan", "gave inf"))
        assert "\n" not in str(fault) and fault.steps == int(not number)
        notes = notes_of(fault)
        assert len(notes) == int(field == "step")
        for note in notes:
            assert "make_trouble" in note and "clew/bridges" not in note
        with pytest.raises(UserError, match="call reset before"):
            stream.step([0, 0, 0, 0])
        before = Labelled.built
        assert stream.reset(1).start.all()
        rebuilt = processes == 0 and not number  # the failed ones, if they are in this process
        assert Labelled.built - before == int(rebuilt)
        assert not stream.step([0, 0, 0, 0]).start.any()


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("processes", [0, 2])
def test_a_keyboard_interrupt_of_an_environment_is_its_fault(processes: int) -> None:
    """While a training handles Ctrl-C, and always in a worker; otherwise it may be the user's."""
    with opened("interrupt", processes) as stream:
        with stop_signals(), pytest.raises(EnvironmentFault, match="environment 2 .*Interrupt"):
            provoke(stream)
        if not processes:
            with pytest.raises(KeyboardInterrupt):
                provoke(stream)


MISFITS = {
    "category": "gave 1000 in its observation episode, 1 steps.* expected values of Discrete",
    "fraction": "1 steps into its episode: .*observation more.step has a value 0.5",
    "large": "1 steps into its episode: .*observation more.step has a value 256",
    "terminated": "1 steps into its episode: .*terminated is nan, expected True or False",
    "truncated": "1 steps into its episode: .*truncated is nan, expected True or False",
}
OF_VECTORS = {
    "category": "gave 1000 in its observation episode, 1 steps.* expected values of Discrete",
    "fraction": "gave 0.5 in its observation more.step, 1 steps",
    "large": "gave 256 in its observation more.step, 1 steps",
    "terminated": "gave nan in its terminated, 1 steps.* expected True or False",
    "truncated": "gave nan in its truncated, 1 steps.* expected True or False",
}


@pytest.mark.parametrize("what", MISFITS)
@pytest.mark.parametrize("processes", [0, 2])
def test_values_outside_of_their_space_are_named(what: str, processes: int) -> None:
    """And they are not clipped to the agent's type."""
    task = gymnasium_task("labelled:Misfit", {"what": what})
    with task.open(4, processes=processes, seed=0) as stream:
        with pytest.raises(EnvironmentFault, match="environment 2 ") as caught:
            provoke(stream)
    assert re.search(MISFITS[what], str(caught.value).replace("\n", " "))


class AsArrays(SyncVectorEnv):
    """A vector environment that passes on its environments' outputs, whatever their type."""

    def step(self, actions: Any) -> Any:
        """Takes a step in each."""
        made = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        observations, rewards, terminated, truncated, _ = zip(*made, strict=True)
        step = np.stack([o["more"]["step"] for o in observations])
        batch = {
            "episode": np.array([o["episode"] for o in observations]),
            "more": {"step": step},
            "number": np.array([o["number"] for o in observations]),
        }
        flags = np.array(terminated), np.array(truncated)
        return batch, np.array(rewards), *flags, {}


@pytest.mark.parametrize("what", OF_VECTORS)
def test_values_outside_of_the_space_of_a_vector(what: str) -> None:
    """For a vector environment of another package."""
    stream = GymnasiumStream(AsArrays([lambda: Misfit(what)] * 3), name="maze")
    stream.reset(0)
    stream.step([0, 0, 0])
    with pytest.raises(EnvironmentFault, match=f"maze: environment 1 {OF_VECTORS[what]}"):
        stream.step([0, 1, 0])


class Reshaping(VectorWrapper):
    """A vector environment that returns one field in another shape, as those on tensors may."""

    reshaped, closed_too = 0, False

    def step(self, actions: Any) -> Any:
        """The inner step."""
        answer = list(super().step(actions))
        answer[self.reshaped] = answer[self.reshaped][:1, None]
        return tuple(answer)

    def close(self, **options: Any) -> None:
        """Closes the inner one, and itself."""
        super().close(**options)
        self.closed_too = True


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (0, r"observation has shape \[1, 1, 3\], expected \[2, 3\]"),
        (1, r"reward has shape \[1, 1\], expected \[2\]"),
        (2, r"terminated has shape \[1, 1\], expected \[2\]"),
        (3, r"truncated has shape \[1, 1\], expected \[2\]"),
    ],
)
def test_a_vector_that_answers_in_another_shape(place: int, says: str) -> None:
    """The values are not broadcast to the other environments."""
    vectors = Reshaping(SyncVectorEnv(makers(2)))
    vectors.reshaped = place
    stream = GymnasiumStream(vectors, name="maze")
    stream.reset(0)
    with pytest.raises(EnvironmentFault, match=f"maze: {says}"):
        stream.step([0, 0])


@pytest.mark.parametrize("processes", [False, True])
def test_a_wrapper_of_a_vector_is_closed_too(processes: bool) -> None:
    """It may have a film to write."""
    vectors = Reshaping(vector("raise", processes))
    with GymnasiumStream(vectors) as stream:
        stream.reset(0)
    assert vectors.closed_too


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("how", ["raise", "exit", "hang"])
def test_closing_ends_whatever_environments_do(
    how: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within seconds, and without an error."""
    for module in ("group", "grouped", "vector"):
        monkeypatch.setattr(f"clew.bridges.gymnasium.{module}.CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(close_quietly, "__defaults__", (0.3,))
    task = gymnasium_task("labelled:BadlyClosed", {"how": how})
    with task.open(2, processes=processes) as stream:
        stream.reset()
        began = time.monotonic()
    assert time.monotonic() - began < 3


@contextlib.contextmanager
def few_descriptors(left: int) -> Iterator[None]:
    """Leaves this process only this many file descriptors."""
    gc.collect()  # files that other tests left open
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2 + left, limits[1]))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(left):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in taken:
            os.close(number)


def test_what_the_system_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unavailable shared memory, and too few descriptors: the cause, and nothing else."""
    task = gymnasium_task(NAME, {"trouble": "raise"})
    with monkeypatch.context() as patch:
        patch.setattr(heap.Arena, "_choose_dir", lambda arena, size: "/nowhere")
        patch.setattr(heap.BufferWrapper, "_heap", heap.Heap())
        with pytest.raises(UserError, match="cannot be started: .*No such file") as refused:
            task.open(4, processes=2)
    assert "__main__" not in str(refused.value)
    for left in (0, 12):
        with few_descriptors(left):
            with pytest.raises(UserError, match="started: Too many open files.*ulimit"):
                task.open(4, processes=2)
    with task.open(4, processes=2) as stream:  # it still works
        assert stream.reset().start.all()


def test_an_environment_that_exits_while_it_is_built() -> None:
    """It is named, and the process continues."""
    with pytest.raises(UserError, match=r"sys:exit called sys.exit\(None\) while it was built"):
        gymnasium_task("sys:exit")


def test_nan_in_a_dict_is_named_by_its_key() -> None:
    """As "observation NAME"."""
    stream = gymnasium_task("labelled:DictLabelled").open(2)
    stream.reset(0)
    stream._episodes.lengths[:] = 7
    spoiled: Any = stream.reset(0).observation
    spoiled["number"][1] = float("nan")
    with pytest.raises(EnvironmentFault, match="environment 1 gave nan in its observation number"):
        stream._check(spoiled)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("trouble", ["reset", "build"])
def test_a_failing_reset_is_named_and_tried_again(
    trouble: str, processes: int, tmp_path: Path
) -> None:
    """Building is part of it. The next reset builds the failed environments anew."""
    bad = tmp_path / "bad"
    with opened(trouble, processes, only=str(bad)) as stream:
        bad.touch()
        says = r"environment 0 \(and 3 others\) raised in reset.*RuntimeError: 100% out of"
        with pytest.raises(EnvironmentFault, match=says):
            stream.reset(0)
        bad.unlink()
        assert stream.reset(0).start.all()


@pytest.mark.parametrize(("processes", "index"), [(2, 2), (4, 2)])
def test_a_dead_worker_is_named(processes: int, index: int) -> None:
    """By the environment that it was stepping; the stream is lost, and says so."""
    with opened("die", processes) as stream:
        with pytest.raises(
            EnvironmentFault, match=rf"environment {index} ended \(exit code 3\)"
        ) as c:
            provoke(stream)
        assert c.value.lost and c.value.index == index and c.value.field == "worker"
        with pytest.raises(EnvironmentFault, match="open another stream"):
            stream.reset()


def test_a_dead_worker_that_was_spawned_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS. The pipe that tells of its end is closed before it has an exit code."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with opened("die", 2) as stream:
        with pytest.raises(EnvironmentFault, match=r"environment 2 ended \(exit code 3\)"):
            provoke(stream)


def test_a_killed_worker_is_named() -> None:
    """When killed from outside between two steps."""
    with opened("raise", 4) as stream:
        stream.reset()
        os.kill(own(stream).processes[3].pid, signal.SIGKILL)
        with pytest.raises(EnvironmentFault, match=r"environment 3 ended \(exit code -9\)"):
            for _ in range(100):
                stream.step([0, 0, 0, 0])


@pytest.mark.parametrize(("processes", "indices"), [(2, (3,)), (4, (1, 3))])
def test_a_hung_environment_is_named_and_closed(processes: int, indices: tuple[int, ...]) -> None:
    """Two hang, in one process one after another; both ignore SIGTERM, and closing is quick."""
    stream = opened("hang", processes)
    stream.reset()
    stream.step([0, 0, 0, 0])
    actions = [0, 1, 0, 1] if processes == 4 else [0, 0, 0, 1]
    with pytest.raises(EnvironmentHung, match="gave no answer within 0.3 s") as caught:
        stream.step(actions, timeout=0.3)
    assert caught.value.indices == indices and caught.value.lost
    began = time.monotonic()
    stream.close()
    assert time.monotonic() - began < 4
    assert not any(process.is_alive() for process in own(stream).processes)


@pytest.mark.parametrize("processes", [0, 2])
def test_a_seed_is_not_lost_with_the_reset_that_failed(processes: int, tmp_path: Path) -> None:
    """Nor is the rest of its stream: a second reset opens the same episodes."""
    trouble = tmp_path / "trouble"
    with opened("reset", processes, only=str(trouble)) as stream:
        expected = np.asarray(stream.reset().observation)
    trouble.touch()
    with opened("reset", processes, only=str(trouble)) as stream:
        with pytest.raises(EnvironmentFault, match="100% out of mazes"):
            stream.reset()
        trouble.unlink()
        np.testing.assert_array_equal(np.asarray(stream.reset().observation), expected)
        assert not np.array_equal(np.asarray(stream.reset().observation), expected)


@pytest.mark.usefixtures("default_signals")
def test_an_answer_that_ctrl_c_left_unread_is_no_answer_to_a_reset() -> None:
    with opened("sleep", 2) as stream:
        stream.reset()
        stream.step([0, 0, 0, 0])
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            stream.step([0, 0, 1, 0])
        with pytest.raises(EnvironmentFault, match="open another stream"):
            stream.reset()


def test_a_timeout_that_is_kept_changes_nothing() -> None:
    """And closing twice is harmless."""
    stream = opened("raise", 2)
    stream.reset(timeout=30)
    assert stream.step([0, 0, 0, 0], timeout=30).reward.shape == (4,)
    stream.close()
    stream.close()


def test_what_nobody_closed_leaves_nothing() -> None:
    """No process remains; shared memory has no file."""
    stream = opened("raise", 2)
    stream.reset()
    processes = own(stream).processes
    del stream
    gc.collect()
    assert processes and not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopping_is_the_parents_affair(number: signal.Signals) -> None:
    """A signal reaches every process of a group, but the workers continue until they are closed."""
    with opened("raise", 2) as stream:
        stream.reset()
        workers = own(stream).processes
        server: Any = forkserver._forkserver
        for pid in [*(process.pid for process in workers), server._forkserver_pid]:
            if pid is not None:  # without a fork server
                os.kill(pid, number)
        for _ in range(3):
            assert not stream.step([0, 0, 0, 0]).start.any()
        assert all(process.is_alive() for process in workers)
    assert not any(process.is_alive() for process in workers)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_tracker_outlives_the_signals_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """multiprocessing's own process, whose end would cause a warning and tracebacks."""
    tracker: Any = resource_tracker.ResourceTracker()
    monkeypatch.setattr(resource_tracker, "ensure_running", tracker.ensure_running)
    start_method()
    try:
        status = Path(f"/proc/{tracker._pid}/status").read_text()
    finally:
        tracker._stop()
    masks = [int(mask, 16) for mask in re.findall(r"Sig(?:Blk|Ign):\s*(\w+)", status)]
    assert all((masks[0] | masks[1]) >> (number - 1) & 1 for number in stopping_signals())
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_reset_forgets_a_step_that_is_pending() -> None:
    """For clew's and for Gymnasium's own vector environments."""
    for stream in (opened("raise", 2), GymnasiumStream(vector("raise", True))):
        with stream:
            stream.reset(0)
            stream.step_async([0] * stream.num_envs)
            assert stream.reset(0, timeout=30).start.all()
            assert not stream.step([0] * stream.num_envs).start.any()


def test_closing_with_an_answer_pending() -> None:
    """It does not wait for the answer."""
    stream = opened("raise", 2)
    stream.reset()
    stream.step_async([0, 0, 0, 0])
    began = time.monotonic()
    stream.close()
    assert time.monotonic() - began < 4


def vector(trouble: str, processes: bool) -> Any:
    """Gymnasium's own vector environment of two, which fails in the second step."""
    makers = [lambda: Troubled(trouble, at=1)] * 2
    return AsyncVectorEnv(makers, context="forkserver") if processes else SyncVectorEnv(makers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("processes", [False, True])
def test_faults_of_gymnasiums_own(processes: bool) -> None:
    """Their exceptions have a traceback, and the index if Gymnasium reports it."""
    with GymnasiumStream(vector("inf reward", processes), name="maze") as stream:
        stream.reset(0)
        with pytest.raises(EnvironmentFault, match="maze: environment 1 gave inf in its reward"):
            stream.step([0, 1])
    with GymnasiumStream(vector("shape", processes), name="maze") as stream:
        stream.reset(0)
        with pytest.raises(EnvironmentFault, match="raised in step: ") as caught:
            stream.step([0, 1])
        assert "Traceback" in notes_of(caught.value)[0]
        assert caught.value.index == (1 if processes else None) and caught.value.lost


def test_nan_in_a_final_observation() -> None:
    """It is reported for an episode that the same step has already left."""
    makers = [lambda: Troubled("nan observation", at=1, end="truncated")] * 2
    vector = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    stream = GymnasiumStream(vector, name="maze")
    stream.reset(0)
    says = "maze: environment 1 gave nan in its observation, 0 steps into its episode"
    with pytest.raises(EnvironmentFault, match=says):
        stream.step([0, 1])


def test_a_hung_worker_of_gymnasiums_own() -> None:
    """Named by its index; closing ends it."""
    stream = GymnasiumStream(vector("hang", True), name="maze")
    stream.reset(0)
    with pytest.raises(EnvironmentHung, match="maze: environment 1 gave no answer within 0.3 s"):
        stream.step([0, 1], timeout=0.3)
    began = time.monotonic()
    stream.close()
    assert time.monotonic() - began < 4
