"""What goes wrong in an environment: named, never a stall, and the stream can be closed."""

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from clew.bridges.gymnasium.stream import EnvironmentFault, EnvironmentHung, GymnasiumStream
from clew.bridges.gymnasium.task import gymnasium_task
from clew.bridges.gymnasium.vector import GroupedVectorEnv
from clew.errors import UserError
from labelled import Labelled, Troubled

NAME = "labelled:Troubled"


def opened(trouble: str, processes: int, **options: Any) -> GymnasiumStream:
    """Four environments, in which trouble comes in the second step with an action 1."""
    task = gymnasium_task(NAME, {"trouble": trouble, **options})
    return task.open(4, processes=processes, seed=0)


def own(stream: GymnasiumStream) -> GroupedVectorEnv:
    """The stream's vector environment, one of ours."""
    assert isinstance(stream.vector, GroupedVectorEnv)
    return stream.vector


def provoke(stream: GymnasiumStream, timeout: float | None = None) -> None:
    """Two steps, the second of which troubles environment 2."""
    stream.reset()
    stream.step([0, 0, 0, 0])
    stream.step([0, 0, 1, 0], timeout)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(
    ("trouble", "field", "says"),
    [
        ("raise", "step", "raised in step, 1 steps into its episode: RuntimeError: 100% broken"),
        ("unpicklable", "step", "cannot be pickled"),
        ("shape", "step", r"has shape \(2,\), its space says \(3,\)"),
        ("nan observation", "observation", "gave nan in its observation, 1 steps into its episode"),
        ("inf reward", "reward", "gave inf in its reward, 1 steps into its episode"),
    ],
)
def test_a_fault_is_named(trouble: str, field: str, says: str, processes: int) -> None:
    """Environment, index, step and field; the traceback where there is one. A reset mends it."""
    with opened(trouble, processes) as stream:
        with pytest.raises(EnvironmentFault, match=f"{NAME}: environment 2 .*{says}") as caught:
            provoke(stream)
        fault = caught.value
        assert isinstance(fault, UserError)
        assert (fault.env, fault.index, fault.episode_step) == (NAME, 2, 1)
        assert fault.field == field and not fault.lost
        assert ("Traceback" in str(fault)) == (field == "step")
        assert ("make_trouble" in str(fault)) == (trouble in ("raise", "unpicklable"))
        with pytest.raises(UserError, match="call reset before"):
            stream.step([0, 0, 0, 0])
        before = Labelled.built
        assert stream.reset(1).start.all()
        rebuilt = processes == 0 and field == "step"  # those that raised, and in this process
        assert Labelled.built - before == int(rebuilt)
        assert not stream.step([0, 0, 0, 0]).start.any()


def test_nan_in_a_dict_is_named_by_its_key() -> None:
    """As "observation NAME"."""
    stream = gymnasium_task("labelled:DictLabelled").open(2)
    stream.reset(0)
    stream._accounts.lengths[:] = 7
    spoiled = {"episode": stream.reset(0).observation["episode"], "number": stream.reset(0).reward}
    spoiled["number"][1] = float("nan")
    with pytest.raises(EnvironmentFault, match="environment 1 gave nan in its observation number"):
        stream._check(spoiled)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("trouble", ["reset", "build"])
def test_a_failing_reset_is_named_and_tried_again(
    trouble: str, processes: int, tmp_path: Path
) -> None:
    """Building belongs to it. The environments that failed are built anew by the next reset."""
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
    """By the environment that was at work in it; the stream is lost, and says so."""
    with opened("die", processes) as stream:
        with pytest.raises(
            EnvironmentFault, match=rf"environment {index} ended \(exit code 3\)"
        ) as c:
            provoke(stream)
        assert c.value.lost and c.value.index == index and c.value.field == "worker"
        with pytest.raises(EnvironmentFault, match="open another stream"):
            stream.reset()


def test_a_killed_worker_is_named() -> None:
    """Killed from outside between two steps."""
    with opened("raise", 4) as stream:
        stream.reset()
        os.kill(own(stream)._workers.processes[3].pid, signal.SIGKILL)
        with pytest.raises(EnvironmentFault, match=r"environment 3 ended \(exit code -9\)"):
            for _ in range(100):
                stream.step([0, 0, 0, 0])


@pytest.mark.parametrize(("processes", "indices"), [(2, (3,)), (4, (1, 3))])
def test_a_hung_environment_is_named_and_closed(processes: int, indices: tuple[int, ...]) -> None:
    """Two hang, in one process one after the other; both ignore SIGTERM, and closing is quick."""
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
    assert not any(process.is_alive() for process in own(stream)._workers.processes)


def test_a_timeout_that_is_kept_changes_nothing() -> None:
    """And closing twice does no harm; nothing of the stream stays on the disk."""
    stream = opened("raise", 2)
    stream.reset(timeout=30)
    assert stream.step([0, 0, 0, 0], timeout=30).reward.shape == (4,)
    assert Path(own(stream)._progress_file).exists()
    stream.close()
    stream.close()
    assert not Path(own(stream)._progress_file).exists()


def test_what_nobody_closed_leaves_nothing() -> None:
    """Neither a file nor a process."""
    stream = opened("raise", 2)
    stream.reset()
    path, processes = Path(own(stream)._progress_file), own(stream)._workers.processes
    del stream
    gc.collect()
    assert not path.exists() and not any(process.is_alive() for process in processes)


def test_ctrl_c_is_the_parents_affair() -> None:
    """It reaches every process of a terminal; the workers go on until they are closed."""
    with opened("raise", 2) as stream:
        stream.reset()
        for process in own(stream)._workers.processes:
            os.kill(process.pid, signal.SIGINT)
        for _ in range(3):
            assert not stream.step([0, 0, 0, 0]).start.any()


def test_a_reset_forgets_a_step_that_is_pending() -> None:
    """Of ours and of Gymnasium's own."""
    for stream in (opened("raise", 2), GymnasiumStream(vector("raise", True))):
        with stream:
            stream.reset(0)
            stream.step_async([0] * stream.num_envs)
            assert stream.reset(0, timeout=30).start.all()
            assert not stream.step([0] * stream.num_envs).start.any()


def test_closing_with_an_answer_pending() -> None:
    """Nobody waits for what was sent."""
    stream = opened("raise", 2)
    stream.reset()
    stream.step_async([0, 0, 0, 0])
    began = time.monotonic()
    stream.close()
    assert time.monotonic() - began < 4


def vector(trouble: str, processes: bool) -> Any:
    """Gymnasium's own vector environment of two, in which trouble comes in the second step."""
    makers = [lambda: Troubled(trouble, at=1)] * 2
    return AsyncVectorEnv(makers, context="forkserver") if processes else SyncVectorEnv(makers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("processes", [False, True])
def test_faults_of_gymnasiums_own(processes: bool) -> None:
    """Their exceptions come with a traceback, and with the index where Gymnasium tells it."""
    with GymnasiumStream(vector("inf reward", processes), name="maze") as stream:
        stream.reset(0)
        with pytest.raises(EnvironmentFault, match="maze: environment 1 gave inf in its reward"):
            stream.step([0, 1])
    with GymnasiumStream(vector("shape", processes), name="maze") as stream:
        stream.reset(0)
        with pytest.raises(EnvironmentFault, match="Traceback") as caught:
            stream.step([0, 1])
        assert caught.value.index == (1 if processes else None) and caught.value.lost


def test_nan_in_a_final_observation() -> None:
    """It is told of an episode that the same step has left already."""
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
    with pytest.raises(EnvironmentHung, match="maze: environments 1 gave no answer within 0.3 s"):
        stream.step([0, 1], timeout=0.3)
    began = time.monotonic()
    stream.close()
    assert time.monotonic() - began < 4
