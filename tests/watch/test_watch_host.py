"""Watching agents in Gymnasium environments: one that counts its own steps."""

import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import clew.cli
from clew.agents.network import NetworkConfig
from clew.cli import run
from clew.envs import MemoryChain
from clew.errors import UserError
from clew.interact.task import PlayConfig
from clew.run.build import build_agent, make_task
from clew.run.config import TrainConfig
from clew.run.load import load_agent
from clew.watch import Film, Recording
from clew.watch.film import Caption
from clew.watch.panels import ActionPanel
from clew.watch.terminal import text_frame


class Counting(gymnasium.Env):
    """Shows the step and a random number; ends after 4 to 6 steps, or is truncated after 5.

    The picture has the step in its first pixel.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(
        self, render_mode: str | None = None, box: bool = False, draws: Any = True, first: int = 0
    ):
        self.render_mode, self._draws = render_mode, draws
        self.observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3, start=first)
        if box:
            self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._step, self._longest = 0, int(self.np_random.integers(4, 7))
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self._step += 1
        ended = self._step >= self._longest
        return self._seen(), float(self._step), ended, not ended and self._step >= 5, {}

    def render(self) -> Any:
        if not self._draws:
            raise gymnasium.error.DependencyNotInstalled("no brush; pip install brush")
        if self._draws == "words":
            return "step"
        if self._draws == "nothing":
            return super().render()
        picture = np.zeros((4, 4, 3), np.uint8)
        picture[0, 0] = self._step
        return picture

    def _seen(self) -> np.ndarray:
        return np.array([self._step, self.np_random.random()], np.float32)


def make(**options: Any) -> tuple[Any, Any]:
    """An agent and its environment."""
    settings: dict[str, Any] = {"env": "test_watch_host:Counting", "env_options": {}, **options}
    config = TrainConfig(
        memory="gru",
        memory_options={"hidden_size": 3},
        network=NetworkConfig(head_size=3),
        **settings,
    )
    side = make_task(config)
    return build_agent(config, side, jax.random.key(0)), side


def played(agent: Any, side: Any, statistics: Any = None, **options: Any) -> list[Recording]:
    how = PlayConfig(**{"episodes": 6, "greedy": False, **options})
    return list(side.recordings(agent, how, statistics))


def test_whole_episodes_with_their_pictures() -> None:
    agent, side = make()
    recordings = played(agent, side)
    unroll = eqx.filter_jit(lambda seen: agent.unroll(agent.init_state(), seen, starts))
    assert {r.ended for r in recordings} == {"terminated", "truncated"}
    assert {r.length for r in recordings} == {4, 5}
    for recording in recordings:
        steps = np.arange(recording.length)
        assert np.array_equal(recording.observations[:, 0], steps)
        assert [int(picture[0, 0, 0]) for picture in recording.pictures] == steps.tolist()
        assert np.array_equal(recording.rewards, steps + 1)
        assert recording.metrics == {"return": sum(steps + 1), "length": recording.length}
        room = ((0, 6 - recording.length), (0, 0))
        starts = jnp.arange(6) == 0
        _, (logits, values) = unroll(jnp.asarray(np.pad(recording.observations, room)))
        chances = jax.nn.softmax(logits)[: recording.length]
        np.testing.assert_allclose(recording.values, values[: recording.length], atol=1e-5)
        np.testing.assert_allclose(recording.probabilities, chances, atol=1e-5)


def vector(num_envs: int, mode: str, render_mode: str | None = None) -> SyncVectorEnv:
    """A factory of vector environments that draw."""
    makers = [lambda: Counting(render_mode)] * num_envs
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode(mode))


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_vector_environment_is_drawn(mode: str) -> None:
    """Each picture is of the step that it stands beside, in either mode."""
    agent, side = make(env="test_watch_host:vector", env_options={"mode": mode})
    for recording in played(agent, side, episodes=3):
        steps = np.arange(recording.length).tolist()
        assert recording.observations[:, 0].tolist() == steps
        assert [int(picture[0, 0, 0]) for picture in recording.pictures] == steps


def test_agents_that_come_together_are_drawn() -> None:
    """The pictures of a whole copy, beside what the first agent sees and does."""
    recordings = played(*make(env="pettingzoo:toy_agents"), episodes=3)
    assert [recording.length for recording in recordings] == [3, 3, 3]
    for recording in recordings:
        assert [int(picture[0, 0, 0]) for picture in recording.pictures] == [0, 50, 100]
        assert recording.observations[:, 1].tolist() == [0, 1, 2]


def test_actions_are_called_as_the_environment_calls_them() -> None:
    """If they are not counted from 0, and have no names."""
    (recording,) = played(*make(env_options={"first": -1}), episodes=1)
    assert recording.action_names == ("-1", "0", "1")
    assert recording.actions.min() >= 0  # indices of their probabilities
    taken = recording.action_names[recording.actions[0]]
    (line,) = (line for line in text_frame(recording, 0).split("\n") if line.endswith("<"))
    assert line.split()[0] == taken


def test_the_seed_settles_everything() -> None:
    agent, side = make()
    one, two = played(agent, side), played(agent, side)
    for a, b in zip(one, two, strict=True):
        assert np.array_equal(a.observations, b.observations)
        assert np.array_equal(a.actions, b.actions)
    other = played(agent, side, seed=1)
    assert not np.array_equal(one[0].observations, other[0].observations)
    cut = played(agent, side, max_steps=2)
    assert {(r.length, r.ended) for r in cut} == {(2, "cut")} and cut[1].metrics == {}
    assert all(np.array_equal(r.observations[:, 0], [0, 1]) for r in cut)


def test_actions_that_are_numbers_and_wrappers() -> None:
    from clew.envs.wrappers import WrapperConfig

    agent, side = make(env_options={"box": True}, wrappers=WrapperConfig(frame_skip=2))
    recording = played(agent, side, episodes=1)[0]
    assert recording.probabilities is None
    assert recording.actions.shape == (recording.length, 2)
    assert np.abs(recording.actions).max() <= 1
    assert np.array_equal(recording.observations[:, 0], 2 * np.arange(recording.length))
    film = Film(recording, Caption("a"))
    assert isinstance(film.panels[1], ActionPanel)
    assert len([frame for frame in film]) == recording.length


def test_the_tasks_own_rewards_are_reported_beside_those_learned_from() -> None:
    from clew.envs.wrappers import WrapperConfig

    agent, side = make()
    assert played(agent, side, episodes=1)[0].own_rewards is None
    agent, side = make(wrappers=WrapperConfig(reward_scale=0.5))
    recording = played(agent, side, episodes=1)[0]
    own = 1 + np.arange(recording.length)
    assert np.array_equal(recording.earned, own)
    assert np.array_equal(recording.rewards, own / 2)
    assert recording.metrics["return"] == sum(own)
    assert f"reward {recording.length}" in text_frame(recording, recording.length - 1)


@pytest.mark.parametrize(
    "draws, says",
    [
        (False, "no brush; pip install"),
        ("words", r"its render returns 'step', expected an array \[height"),
        ("nothing", "it has no render"),
    ],
)
def test_what_cannot_draw_is_shown_as_numbers(draws: Any, says: str) -> None:
    agent, side = make(env_options={"draws": draws})
    with pytest.warns(UserWarning, match=f"no pictures of the environment: {says}"):
        recording = played(agent, side, episodes=1)[0]
    assert recording.pictures is None
    assert Film(recording, Caption("a"))[0].shape[1] == 960


def test_a_registered_environment_that_takes_no_render_mode() -> None:
    """Its observations are shown, and the message says what it needs for pictures."""
    gymnasium.register("clew-test/Plain-v0", entry_point=lambda: Counting())
    try:
        agent, side = make(env="gymnasium:clew-test/Plain-v0")
        with pytest.warns(UserWarning, match='it draws with render_mode="rgb_array"'):
            assert played(agent, side, episodes=1)[0].pictures is None
    finally:
        del gymnasium.registry["clew-test/Plain-v0"]


def drawn_anyway(**options: Any) -> Counting:
    """Passes on its arguments beside its own mode."""
    return Counting(render_mode="rgb_array", **options)


def test_a_factory_with_a_mode_of_its_own_is_told_who_asked() -> None:
    agent, side = make(env="test_watch_host:drawn_anyway")
    with pytest.raises(UserError, match="multiple values.*films it is called with render_mode"):
        played(agent, side, episodes=1)


@pytest.mark.parametrize("task", ["MemoryChain", "Bandit"])
def test_tasks_of_clew_draw_what_they_can(task: str) -> None:
    """Through Gymnasium they have the same pictures as in JAX, or none."""
    agent, side = make(env=f"gymnasium:clew/{task}-v0", env_options={})
    (recording,) = played(agent, side, episodes=1)
    if task == "Bandit":
        assert recording.pictures is None
    else:
        assert recording.pictures is not None and len(recording.pictures) == recording.length
        chain = MemoryChain()
        state, seen = chain.reset_to([int(recording.observations[0, 2] > 0)])
        expected = chain.render_image(jax.device_get(state), np.asarray(seen))
        np.testing.assert_array_equal(recording.pictures[0], expected)
    assert Film(recording, Caption("a"))[0].shape[1] == 960


@pytest.mark.slow
def test_from_training_to_a_video(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """With the statistics that the wrappers learned in training."""
    line = "--env test_watch_host:Counting --env-options --memory gru --memory-options"
    line += " hidden_size=3 --network.head-size 3 --a2c.num-envs 2 --a2c.rollout-length 4"
    line += " --wrappers.normalise-observations --steps 80 --seeds 2 --name counted"
    assert run(["train", *line.split(), "--run-dir", str(tmp_path)]) == 0
    path = tmp_path / "counted"
    loaded = load_agent(path, seed_index=1)
    assert jax.tree.leaves(loaded.statistics)
    capsys.readouterr()
    assert run(["watch", str(path), "--seed-index", "1", "--episodes", "2"]) == 0
    assert capsys.readouterr().out == f"video: {path / 'watch.gif'}\n"
    side = make_task(loaded.config)
    learned = played(loaded.agent, side, statistics=loaded.statistics, episodes=1)[0]
    blank = played(loaded.agent, side, episodes=1)[0]
    assert not np.array_equal(learned.observations, blank.observations)
    with pytest.raises(UserError, match="episodes must be an integer"):
        played(loaded.agent, side, episodes=0)


def test_own_warnings_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []

    def warn(args: list[str]) -> int:
        for text, file in (("no brush", clew.cli.__file__), ("no luck", "/elsewhere.py")):
            printed.append(warnings.formatwarning(text, UserWarning, file, 7))
        return 0

    usual = warnings.formatwarning
    monkeypatch.setattr(clew.cli, "dispatch", warn)
    assert run([]) == 0
    assert printed == ["warning: no brush\n", "/elsewhere.py:7: UserWarning: no luck\n"]
    assert warnings.formatwarning is usual
