"""Spaces of Gymnasium environments: what the agent observes, and which actions arrive."""

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from clew.bridges.gymnasium.build import EnvBuilder
from clew.bridges.gymnasium.faults import AnswerError
from clew.bridges.gymnasium.group import GroupPlan
from clew.bridges.gymnasium.grouped import GroupedEnvs
from clew.bridges.gymnasium.spaces import adapt_action, adapt_observation
from clew.bridges.gymnasium.stream import GymnasiumStream
from clew.bridges.gymnasium.task import GymnasiumTask, gymnasium_task
from clew.errors import UserError
from labelled import Echo

BOX = spaces.Box(-1.0, 1.0, (2, 3), np.float64)
OBSERVATIONS = [
    (BOX, spaces.Box(-1.0, 1.0, (2, 3), np.float32)),
    (spaces.Box(0, 255, (4, 4, 3), np.uint8), spaces.Box(0, 255, (4, 4, 3), np.uint8)),
    (spaces.Box(-9, 9, (2,), np.int64), spaces.Box(-9, 9, (2,), np.float32)),
    (spaces.Box(0, 1, (), np.float16), spaces.Box(0, 1, (), np.float32)),
    (spaces.Discrete(3, start=-1), spaces.Discrete(3)),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), spaces.MultiDiscrete([2, 3, 4, 5])),
    (spaces.MultiDiscrete([2, 3], start=[7, -7]), spaces.MultiDiscrete([2, 3])),
    (spaces.MultiBinary([2, 2]), spaces.Box(0, 1, (2, 2), np.float32)),
]


def by_hand(space: spaces.Space, value: Any) -> np.ndarray:
    """The agent's observation of one value, by hand."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return (np.asarray(value) - space.start).ravel().astype(np.int32)
    return np.asarray(value, space.dtype if space.dtype == np.uint8 else np.float32)


@pytest.mark.parametrize(("space", "seen"), OBSERVATIONS)
def test_observations(space: Any, seen: Any) -> None:
    """One value, and a batch as Gymnasium makes it, follow the written rule."""
    space.seed(0)
    adapter: Any = adapt_observation(space)
    assert adapter.space == seen and adapter.space.dtype == seen.dtype
    values = [space.sample() for _ in range(5)]
    batch = concatenate(space, values, create_empty_array(space, 5))
    adapted = adapter(batch)
    assert isinstance(adapted, np.ndarray) and adapted.shape == (5, *seen.shape)
    assert not np.shares_memory(adapted, batch)
    for value, row in zip(values, adapted, strict=True):
        np.testing.assert_array_equal(np.ravel(row), by_hand(space, value).ravel())
        single = adapter(value)
        assert single.dtype == row.dtype and single.shape == seen.shape
        np.testing.assert_array_equal(single, row)
        if not isinstance(seen, spaces.Discrete | spaces.MultiDiscrete):
            assert seen.contains(single)


def test_dicts_and_tuples_are_flat() -> None:
    """Names are joined by dots, positions in a Tuple are names, and text is left out."""
    inner = [space for space, _ in OBSERVATIONS]
    space = spaces.Dict(
        {
            "a": inner[0],
            "b": spaces.Dict({"c": spaces.Tuple(inner[1:4]), "text": spaces.Text(3)}),
            "d": inner[4],
        }
    )
    adapter: Any = adapt_observation(space)
    assert list(adapter.space) == ["a", "b.c.0", "b.c.1", "b.c.2", "d"]
    seen = [seen for _, seen in OBSERVATIONS[:5]]
    assert list(adapter.space.values()) == seen
    values = [space.sample() for _ in range(3)]
    batch = concatenate(space, values, create_empty_array(space, 3))
    adapted = adapter(batch)
    for i, value in enumerate(values):
        alone = adapter(value)
        assert list(alone) == list(adapter.space)
        for name, row in alone.items():
            np.testing.assert_array_equal(adapted[name][i], row)
    np.testing.assert_array_equal(adapted["d"][0], values[0]["d"] + 1)


ACTIONS = [
    (spaces.Discrete(3, start=2), [0, 2], [2, 4]),
    (spaces.MultiDiscrete([2, 3], start=[0, 5]), [[0, 0], [1, 2]], [[0, 5], [1, 7]]),
    (spaces.MultiDiscrete([[2], [3]]), [[[0], [1]], [[1], [2]]], [[[0], [1]], [[1], [2]]]),
    (spaces.MultiBinary(2), [[0, 1], [1, 1]], [[0, 1], [1, 1]]),
    (spaces.Box(-2.0, 2.0, (1,), np.float64), [[3.0], [-0.5]], [[2.0], [-0.5]]),
    (spaces.Box(-np.inf, np.inf, (1,), np.float32), [[3e9], [-0.5]], [[3e9], [-0.5]]),
    (spaces.Box(-1e300, 1e300, (1,), np.float64), [[3e9], [-0.5]], [[3e9], [-0.5]]),
]


@pytest.mark.parametrize(("space", "chosen", "taken"), ACTIONS)
def test_actions(space: Any, chosen: Any, taken: Any) -> None:
    """They are shifted, clipped, and of the environment's own type; so too in worker processes."""
    adapter: Any = adapt_action(space)
    result = adapter(np.array(chosen))
    assert result.dtype == space.dtype
    np.testing.assert_array_equal(result, np.array(taken, space.dtype))
    assert all(action in space for action in result)
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        assert adapter.space.shape == space.shape
    else:
        assert not np.any(adapter.space.start)


@pytest.mark.parametrize(("space", "chosen", "taken"), ACTIONS)
def test_actions_reach_the_environment(space: Any, chosen: Any, taken: Any) -> None:
    """They are members of its own space, without processes and with one for each environment."""
    builder = EnvBuilder("labelled:Echo", {"action": space})
    for processes in (0, 2):
        plan = GroupPlan(builder, adapt_observation(Echo.observation_space), space, 0, 2)
        with GymnasiumStream(GroupedEnvs(plan, 2, processes)) as stream:
            stream.reset(0)
            timesteps = stream.step(np.array(chosen))
        rows = [np.resize(np.asarray(row, np.float32), 3) for row in taken]
        np.testing.assert_array_equal(timesteps.observation, rows)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (spaces.Text(3), r"observes Text\(.*supported are Box, Discrete, MultiBinary"),
        (spaces.Dict({"a": spaces.Sequence(BOX)}), r"observes Sequence\(.*at a; supported are Box"),
        (spaces.Dict({"words": spaces.Text(3)}), "observes nothing usable"),
        (spaces.Graph(BOX, None), "observes Graph"),
    ],
)
def test_unsupported_observations_are_named(space: Any, says: str) -> None:
    """The error is one line with their place and the supported spaces."""
    with pytest.raises(UserError, match=f"maze {says}") as caught:
        adapt_observation(space, "maze")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "space", [spaces.Dict({"a": BOX}), spaces.Box(0, 5, (2,), np.int32), spaces.Text(3)]
)
def test_unsupported_actions_are_named(space: Any) -> None:
    """The error has the supported spaces."""
    with pytest.raises(UserError, match=r"maze has actions .*supported are Discrete, MultiDis"):
        adapt_action(space, "maze")


def test_a_task_names_unsupported_spaces() -> None:
    """The error comes when the task is looked up, before anything is opened."""
    with pytest.raises(UserError, match="labelled:Strange has actions Text"):
        gymnasium_task("labelled:Strange", {"action": spaces.Text(3)})


@pytest.mark.parametrize("value", [300, 0.5, -1])
def test_what_bytes_cannot_hold_is_named(value: float) -> None:
    """Also in a final observation, which no step shows."""
    with pytest.raises(AnswerError, match=f"observation has a value {value}, its space is Box"):
        adapt_observation(spaces.Box(0, 255, (2,), np.uint8))(np.array([1, value]))


def test_bounds_may_be_the_largest_numbers_of_their_type() -> None:
    """Some environments write these instead of infinite bounds."""
    most = float(np.finfo(np.float32).max)
    task = gymnasium_task("labelled:Strange", {"observation": spaces.Box(-most, most, (3,))})
    with task.open(1) as stream:
        assert stream.reset(0).start.all()


def test_a_task_can_be_pickled() -> None:
    """And it still opens afterwards."""
    task = pickle.loads(pickle.dumps(gymnasium_task("labelled:DictLabelled")))
    assert isinstance(task, GymnasiumTask)
    assert task.open(2).reset(0).start.shape == (2,)


def test_names_that_are_one_when_joined_are_refused() -> None:
    box = spaces.Box(-1, 1, (2,))
    space = spaces.Dict({"a": spaces.Dict({"b": box}), "a.b": box})
    with pytest.raises(UserError, match="maze observes two entries that are both called 'a.b'"):
        adapt_observation(space, "maze")
