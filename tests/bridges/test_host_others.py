"""Memory tasks of MiniGrid and popgym as streams; skipped where the packages are not installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from clew.bridges.gymnasium.stream import GymnasiumStep
from clew.bridges.gymnasium.task import GymnasiumTask, gymnasium_task
from clew.envs.wrappers import WrapperConfig

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the packages


def play(task: GymnasiumTask, steps: int, **options: Any) -> tuple[list[GymnasiumStep], np.ndarray]:
    """A reset of four environments and random steps."""
    task.action_space.seed(0)
    actions = np.array([[task.action_space.sample() for _ in range(4)] for _ in range(steps)])
    with task.open(4, seed=0, **options) as stream:
        return [stream.reset(), *(stream.step(row) for row in actions)], actions


@pytest.mark.parametrize("processes", [0, 2])
def test_minigrid(processes: int) -> None:
    """It shows a picture of 7 x 7 cells and a direction, without the mission, a sentence."""
    pytest.importorskip("minigrid")
    task = gymnasium_task("gymnasium:MiniGrid-MemoryS7-v0")
    assert set(task.observation_space) == {"image", "direction"}
    assert task.observation_space["image"] == spaces.Box(0, 255, (7, 7, 3), np.uint8)
    assert task.observation_space["direction"] == spaces.Discrete(4)
    timesteps, _ = play(task, 250, processes=processes)
    assert any(step.ended.any() for step in timesteps)
    assert all(step.observation["image"].dtype == np.uint8 for step in timesteps)
    assert timesteps[0].observation["direction"].dtype == np.int32


@pytest.mark.parametrize("processes", [0, 2])
def test_minigrid_with_one_hot_cells(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the example, each cell has one kind, one colour and one state."""
    pytest.importorskip("minigrid")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    task = gymnasium_task("minigrid_memory:make")
    assert set(task.observation_space) == {"image", "direction"}
    timesteps, _ = play(task, 20, processes=processes)
    for step in timesteps:
        assert set(np.unique(step.observation["image"])) <= {0, 1}
        assert (step.observation["image"].sum(axis=-1) == 3).all()


@pytest.mark.parametrize("processes", [0, 2])
def test_popgym_repeats_what_it_showed(processes: int) -> None:
    """RepeatPreviousEasy asks for the card of four observations ago, and the stream shows this."""
    pytest.importorskip("popgym")
    task = gymnasium_task("gymnasium:popgym-RepeatPreviousEasy-v0")
    assert task.observation_space == spaces.Discrete(4) == task.action_space
    with task.open(4, processes=processes, seed=1) as stream:
        step, seen = stream.reset(), [[] for _ in range(4)]
        ends = 0
        for _ in range(120):
            for i, cards in enumerate(seen):
                if step.start[i]:
                    cards.clear()
                cards.append(step.observation[i])
            step = stream.step([cards[-4] if len(cards) >= 4 else 0 for cards in seen])
            assert (step.reward >= 0).all()
            for i in np.flatnonzero(step.ended):
                assert step.metrics["return"][i] == pytest.approx(1.0, abs=1e-5)
                ends += 1
    assert ends >= 4


@pytest.mark.parametrize(
    ("name", "observation"),
    [
        ("AutoencodeEasy", spaces.Dict({"0": spaces.Discrete(2), "1": spaces.Discrete(4)})),
        ("CountRecallEasy", spaces.MultiDiscrete([2, 2])),
        ("BattleshipEasy", spaces.Discrete(2)),
    ],
)
def test_other_spaces_of_popgym(name: str, observation: Any) -> None:
    """Tuples, and several choices as observations and actions, with the previous action shown."""
    pytest.importorskip("popgym")
    task = gymnasium_task(f"gymnasium:popgym-{name}-v0")
    assert task.observation_space == observation
    timesteps, _ = play(task, 30, wrappers=WrapperConfig(time_limit=10))
    assert any(step.ended.any() for step in timesteps)


def test_masked_velocities_of_cartpole() -> None:
    """The stream shows the same as popgym's own masked task: positions and angles."""
    hidden = WrapperConfig(keep=(0, 2))
    task = gymnasium_task("gymnasium:CartPole-v1")
    timesteps, actions = play(task, 60, wrappers=hidden)
    whole, again = play(task, 60)
    np.testing.assert_array_equal(actions, again)
    for step, full in zip(timesteps, whole, strict=True):
        np.testing.assert_array_equal(step.observation, full.observation[:, [0, 2]])


def test_pendulum_is_cut_off_and_never_over() -> None:
    """Its time limit truncates: the discount is 1, and the final observation can be valued."""
    timesteps, _ = play(gymnasium_task("gymnasium:Pendulum-v1"), 205)
    ends = [k for k, step in enumerate(timesteps) if step.ended.any()]
    assert ends == [200] and timesteps[200].last.all() and (timesteps[200].discount == 1).all()
    assert (timesteps[200].metrics["length"] == 200).all()
    assert timesteps[201].start.all() and (timesteps[201].reward == 0).all()
    totals = np.sum([step.reward for step in timesteps[1:201]], axis=0)
    np.testing.assert_allclose(timesteps[200].metrics["return"], totals, rtol=1e-4)
