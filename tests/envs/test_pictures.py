"""Pictures and texts of the tasks show the state, and change with it."""

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import clew.envs.gymnasium_api  # noqa: F401
from clew.bridges.make import make_env
from clew.envs import DistributedMemory, Environment, MemoryChain, TMaze
from clew.envs.canvas import Canvas, mixed, rgb
from clew.envs.recall import shown_time
from clew.interact.task import PlayConfig
from clew.watch import Recording

SIZES = {
    "tmaze": [{"corridor_length": 2}, {"corridor_length": 300}],
    "memory_chain": [{"memory_length": 1}, {"memory_length": 4, "num_bits": 60}],
    "distributed_memory": [{"memory_length": 5}, {"memory_length": 200, "num_bits": 99}],
}


def walk(env: Environment, actions: list[int]) -> tuple[list, list]:
    """States and observations before each action, and after the last, in NumPy."""
    state, seen = env.reset(jax.random.key(1))
    pairs = [(state, seen)]
    for action in actions:
        state, then = env.step(state, np.int32(action), jax.random.key(2))
        pairs.append((state, then.observation))
    states, observations = zip(*jax.device_get(pairs), strict=True)
    return list(states), [np.asarray(x) for x in observations]


@pytest.mark.parametrize(
    ("name", "options"), [(name, o) for name, several in SIZES.items() for o in several]
)
def test_every_task_draws_itself(name: str, options: dict[str, int]) -> None:
    """The size is the same at every step, and both the smallest and large tasks fit."""
    env = make_env(name, **options)
    states, observations = walk(env, [1, 0, 1])
    pictures = [env.render_image(s, o) for s, o in zip(states, observations, strict=True)]
    shapes = {picture.shape for picture in pictures if picture is not None}
    assert len(shapes) == 1 and len(pictures) == 4
    height, width, colours = shapes.pop()
    assert width == 912 and 100 < height < 300 and colours == 3
    assert not np.array_equal(pictures[0], pictures[1]) or name == "memory_chain"
    edge = np.concatenate([pictures[0][:, -1], pictures[0][-1]])
    assert np.all(edge == 255)  # nothing extends beyond the picture


def has(picture: np.ndarray, colour: str, rows: slice, columns: slice) -> bool:
    """Whether a part of a picture has a pixel of this colour."""
    return bool(np.any(np.all(picture[rows, columns] == rgb(colour), axis=-1)))


def test_the_maze_shows_cue_agent_and_the_right_arm() -> None:
    env = TMaze(corridor_length=5)
    for cue, right, wrong in (
        (0, slice(0, 90), slice(110, 190)),
        (1, slice(110, 190), slice(0, 90)),
    ):
        state, seen = jax.device_get(env.reset_to(cue))
        first = env.render_image(state, seen)
        later = env.render_image(state._replace(position=4, time=4), 0 * seen)
        sign, arms = slice(20, 100), slice(700, 912)
        assert has(first, "#F0C419", slice(None), sign)
        assert not has(later, "#F0C419", slice(None), sign)
        assert has(first, "#009E73", right, arms) and not has(first, "#009E73", wrong, arms)
        assert has(first, "#0072B2", slice(None), slice(100, 160))
        assert has(later, "#0072B2", slice(None), slice(700, 912))


def test_bits_are_bright_while_they_are_shown() -> None:
    chain = MemoryChain(memory_length=4, num_bits=2)
    shown = []
    state, seen = chain.reset_to([1, 1], 1)
    for _ in range(5):
        state_now, seen_now = jax.device_get((state, seen))
        picture = chain.render_image(state_now, seen_now)
        bright, asked = (
            has(picture, c, slice(40, 130), slice(None)) for c in ("#0072B2", "#D55E00")
        )
        shown.append((shown_time(state_now), bright, asked))
        state, then = chain.step(state, np.int32(0), jax.random.key(0))
        seen = then.observation
    assert shown == [
        (0, True, False),
        (0, True, False),
        (1, False, False),
        (2, False, False),
        (3, False, True),
    ]


def test_lines_are_those_of_the_gymnasium_form() -> None:
    maze = gymnasium.make("clew/TMaze-v0", corridor_length=5, render_mode="ansi")
    env = TMaze(corridor_length=5)
    state, seen = env.reset_to(1)
    maze.reset(options={"cue": 1})
    for action in (3, 3, 2, 3, 3, 3):
        assert env.render_text(jax.device_get(state), np.asarray(seen)) == maze.render()
        state, then = env.step(state, np.int32(action), jax.random.key(0))
        seen = then.observation
        maze.step(action)
    several = {
        "clew/MemoryChain-v0": (
            MemoryChain(memory_length=3, num_bits=2),
            {"context": [1, 0], "query": 1},
        ),
        "clew/DistributedMemory-v0": (
            DistributedMemory(memory_length=4, num_bits=3),
            {"context": [1, 0, 0]},
        ),
    }
    for name, (task, options) in several.items():
        sizes = {"memory_length": task.memory_length, "num_bits": task.episodes.num_bits}
        other = gymnasium.make(name, render_mode="ansi", **sizes)
        other.reset(options=options)
        state, seen = task.reset_to(*options.values())
        for _ in range(task.longest):
            assert task.render_text(jax.device_get(state), np.asarray(seen)) == other.render()
            state, then = task.step(state, np.int32(0), jax.random.key(0))
            seen = then.observation
            other.step(0)


class Silent(MemoryChain):
    """A task that renders nothing."""

    def render_image(self, state: Any, observation: Any) -> Any:
        return Environment.render_image(self, state, observation)

    def render_text(self, state: Any, observation: Any) -> Any:
        return Environment.render_text(self, state, observation)


def test_a_task_need_not_render(monkeypatch: pytest.MonkeyPatch) -> None:
    from clew.envs import ENVS
    from clew.run.build import build_agent, make_task
    from clew.run.config import TrainConfig

    monkeypatch.setitem(ENVS, "silent", Silent)
    config = TrainConfig(
        env="silent",
        env_options={"memory_length": 2},
        memory="none",
        memory_options={"hidden_size": 2},
    )
    task = make_task(config)
    agent = build_agent(config, task, jax.random.key(0))
    recording = next(task.recordings(agent, PlayConfig()))
    assert isinstance(recording, Recording) and recording.length == 3
    assert recording.pictures is None and recording.texts is None
    assert recording.action_names == ()


def test_a_canvas_draws_at_the_given_places() -> None:
    canvas = Canvas(20, 10)
    canvas.box((2, 3, 6, 8), "#000000")
    inside = np.all(canvas.pixels() == 0, axis=-1)
    assert inside.sum() == 20 and inside[3:8, 2:6].all()
    copy = canvas.copy()
    copy.disc((14, 5), 3, "#FF0000")
    assert np.array_equal(copy.pixels()[5, 14], [255, 0, 0])
    assert np.all(canvas.pixels()[:, 10:] == 255)
    copy.text((1, 5), "I", 9, "#0000FF")
    assert (copy.pixels()[:, :8] != canvas.pixels()[:, :8]).any()
    assert mixed("#000000", "#FFFFFF", 0.25) == "#BFBFBF" and rgb("#0072B2") == (0, 114, 178)
