"""`clew inspect` on Gymnasium environments with any observations and actions."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from clew.agents.network import NetworkConfig
from clew.errors import UserError
from clew.inspect.influence import episode_influence
from clew.inspect.run import inspect_run
from clew.interact.episodes import in_one_axis, reads_one_axis
from clew.interact.hosted_task import HostedTask
from clew.interact.task import PlayConfig
from clew.run.build import build_agent, make_task
from clew.run.config import TrainConfig
from clew.run.progress import Quiet
from clew.run.train import train
from labelled import LENGTHS
from slow_cases import fast_only
from small_async import async_config


def parts(env: str, encoder: str = "mlp", **options: Any) -> tuple[Any, HostedTask]:
    """An untrained agent, and its environment."""
    network = NetworkConfig(
        head_size=4, encoder=encoder, encoder_size=4, picture_channels=(2, 2), picture_size=4
    )
    config = TrainConfig(
        env=env,
        env_options=options,
        memory="gru",
        memory_options={"hidden_size": 4},
        network=network,
        algorithm="ppo",
    )
    stream = make_task(config)
    assert isinstance(stream, HostedTask)
    return build_agent(config, stream, jax.random.key(0)), stream


def test_whole_episodes_are_recorded() -> None:
    """Each one from its first observation to the last that was acted on, and no other."""
    agent, side = parts("labelled:Labelled", number=3)
    found = side.episodes(agent, PlayConfig(episodes=40))
    assert found.number == 40 and found.left_out == 0 and found.labels == {}
    for number in range(40):
        time = np.arange(found.lengths[number])
        seen = found.observations[number, : len(time)]
        episode = int(seen[0, 0])
        assert len(time) == LENGTHS[episode % len(LENGTHS)]
        assert (seen[:, 0] == episode).all() and (seen[:, 1] == time).all()
        assert not found.observations[number, len(time) :].any()
    np.testing.assert_array_equal(found.metrics["length"], found.lengths)


def test_long_episodes_are_left_out_and_counted() -> None:
    """They are counted among the requested ones."""
    agent, side = parts("labelled:Labelled")
    found = side.episodes(agent, PlayConfig(episodes=16 * 6, max_steps=3))
    assert found.left_out == 16 * 2 and found.lengths.max() == 3
    side.environment.options["lengths"] = (5,)
    side.environment.options["ends"] = ("terminated",)
    with pytest.raises(UserError, match="none of 4 episodes ended within 3 steps"):
        side.episodes(agent, PlayConfig(episodes=4, max_steps=3))


def test_episodes_without_end_are_left() -> None:
    """Each environment gives up on them, whatever its quota; the other episodes count."""
    agent, side = parts("labelled:Labelled", lengths=(2, 10**9), ends=("terminated",) * 2)
    found = side.episodes(agent, PlayConfig(episodes=16 * 4, max_steps=3))
    assert found.number == found.left_out == 32 and set(found.lengths) == {2}


def test_too_much_to_hold_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before memory is allocated."""
    monkeypatch.setattr("clew.interact.hosted_task.LARGEST", 100)
    agent, side = parts("labelled:Labelled")
    with pytest.raises(UserError, match="Labelled take more than 0 GiB; take fewer episodes"):
        side.episodes(agent, PlayConfig(episodes=20))


SPACES = {
    "dict": ("labelled:DictLabelled", {"number": 1}),  # a large one would saturate
    "box of actions": ("gymnasium:Pendulum-v1", {}),
    "picture": ("pixel_maze:PixelMaze", {"encoder": "impala"}),
}


@pytest.mark.parametrize("name", fast_only(SPACES, "picture"))
def test_every_space_is_explained(name: str) -> None:
    """Later observations have no influence, the present one has; both measures agree on that."""
    env, options = SPACES[name]
    agent, side = parts(env, **options)
    found = side.episodes(agent, PlayConfig(episodes=3, greedy=False))
    some = found.first(2)
    time = min(some.longest, 5)
    flat = reads_one_axis(agent, side.observation_space.sample())
    at = np.minimum(some.lengths, time)[:, None] - 1
    gradient, occlusion = episode_influence(
        flat,
        some.observations[:, :time],
        some.actions[:, :time],
        at,
        np.zeros_like(some.observations[:, 0]),
    )
    for way in (gradient, occlusion):
        for measure in way:
            assert np.isfinite(measure).all()
            for number, (decision,) in enumerate(at):
                assert not measure[number, 0, decision + 1 :].any()
    assert (gradient.policy[np.arange(len(at)), 0, at[:, 0]] > 0).all()


@pytest.mark.parametrize("name", ["dict", "picture"])
def test_one_axis_is_read_as_the_leaves_are(name: str) -> None:
    """In the order of the leaves, for any shapes and types."""
    env, options = SPACES[name]
    agent, side = parts(env, **options)
    with side.open(3, seed=0) as stream:
        seen = stream.reset().observation
    flat = reads_one_axis(agent, side.observation_space.sample())
    np.testing.assert_array_equal(flat.encoder(in_one_axis(seen, 1)), agent.encoder(seen))


@pytest.mark.slow
def test_from_training_to_a_page(tmp_path: Path) -> None:
    """Works for a run on Pendulum, whose actions are continuous."""
    config = async_config(env="gymnasium:Pendulum-v1", runner="sync", steps=64)
    config = TrainConfig(**{**vars(config), "run_dir": str(tmp_path), "name": "run"})
    train(config, progress=Quiet())
    found = inspect_run(tmp_path / "run", episodes=4, max_steps=200)
    assert found.episodes == 4 and found.task == "gymnasium:Pendulum-v1"
    assert {probe.label for probe in found.probes} <= {f"observation[{i}]" for i in range(3)}
    json.dumps(found.metrics)
    assert np.isfinite(found.gradient.log_prob).all()
