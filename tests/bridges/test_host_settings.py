"""Impossible settings of wrappers are refused; films of episodes are written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from PIL import Image

from clew.bridges.gymnasium.build import GIF_PIXELS
from clew.bridges.gymnasium.stream import GymnasiumStream
from clew.bridges.gymnasium.task import gymnasium_task
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from labelled import makers


@pytest.mark.parametrize("processes", [0, 2])
def test_video(tmp_path: Path, processes: int) -> None:
    """Every second episode of the first environment is filmed, small, with all observations."""
    wrappers = WrapperConfig(video_every=2, video_folder=str(tmp_path / "films"), time_limit=4)
    options = {"lengths": (3, 9, 2), "ends": ("terminated",) * 3}
    stream = gymnasium_task("labelled:Pictured", options).open(
        2, wrappers=wrappers, processes=processes
    )
    with stream:
        stream.reset(0)
        for _ in range(20):
            stream.step([0, 0])
    films = sorted((tmp_path / "films").iterdir())
    assert [film.name for film in films] == [f"episode-{k:06d}.gif" for k in (0, 2, 4)]
    for film, pictures in zip(films, (4, 3, 5), strict=True):
        with Image.open(film) as gif:
            assert getattr(gif, "n_frames", 1) == pictures and gif.size == (GIF_PIXELS, 160)
            colours = []
            for frame in range(pictures):
                gif.seek(frame)
                colours.append(gif.convert("RGB").getpixel((0, 0)))
        np.testing.assert_allclose([c[0] for c in colours], 20 * np.arange(pictures), atol=8)


def test_films_of_before_stay(tmp_path: Path) -> None:
    """Environments opened again, or at the same time, continue the numbering of existing films."""
    wrappers = WrapperConfig(video_every=1, video_folder=str(tmp_path), time_limit=2)
    task = gymnasium_task("labelled:Pictured", {"lengths": (2,), "ends": ("terminated",)})
    (tmp_path / "episode-000007.gif").write_bytes(b"mine")
    with task.open(1, wrappers=wrappers) as one, task.open(1, wrappers=wrappers) as other:
        for stream in (one, other):
            stream.reset(0)
            stream.step([0])
            stream.step([0])
    films = sorted(path.name for path in tmp_path.iterdir())
    assert films[:3] == [f"episode-{number:06d}.gif" for number in (7, 8, 9)]
    assert (tmp_path / "episode-000007.gif").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"frame_skip": 0}, "frame_skip must be an integer of at least 1, got 0"),
        ({"time_limit": 0}, "time_limit must be"),
        ({"reward_clip": -1.0}, "reward_clip must be a finite number above 0"),
        ({"reward_gamma": 1.5}, "reward_gamma must be between 0 and 1"),
        ({"observation_clip": 0.0}, "observation_clip must be"),
        ({"reward_scale": 0.0}, "reward_scale must be"),
        ({"video_every": -1}, "video_every must be"),
        ({"video_every": 1, "video_folder": ""}, "needs a video_folder"),
        ({"keep": ()}, "keep must name different entries"),
        ({"keep": (0, 0)}, "keep must name different entries"),
        ({"keep": (-1,)}, "an index of keep must be"),
        ({"keep": (0, 3)}, r"keep is \(0, 3\), the observation has entries 0 to 2"),
    ],
)
def test_impossible_settings(settings: Any, says: str) -> None:
    """The error names the setting and the expectation."""
    task = gymnasium_task("labelled:Labelled")
    with pytest.raises(UserError, match=says):
        task.open(1, wrappers=WrapperConfig(**settings))


def test_settings_that_do_not_fit() -> None:
    """They do not fit the environment, or the way it is built."""
    for settings in ({"frame_skip": 2}, {"time_limit": 5}, {"video_every": 1}):
        with pytest.raises(UserError, match="wraps single environments, but maze is a vec"):
            GymnasiumStream(
                SyncVectorEnv(makers(2)), name="maze", wrappers=WrapperConfig(**settings)
            )
    dicts = gymnasium_task("labelled:DictLabelled")
    with pytest.raises(UserError, match="keep is for vector observations"):
        dicts.observed(WrapperConfig(keep=(0,)))
    numbers = gymnasium_task("labelled:Strange", {"observation": spaces.Discrete(3)})
    with pytest.raises(UserError, match="normalise_observations finds no float Box in Discrete"):
        numbers.observed(WrapperConfig(normalise_observations=True))
    with pytest.raises(UserError, match="video_every needs the render mode 'rgb_array'"):
        gymnasium_task("labelled:Labelled").builder(WrapperConfig(video_every=1))(0)
    with pytest.raises(
        UserError, match="raised in reset, .*: video_every needs the rend.* is None$"
    ):
        gymnasium_task("labelled:Blind").open(1, wrappers=WrapperConfig(video_every=1)).reset()
