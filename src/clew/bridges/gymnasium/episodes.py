"""Wrappers around a single environment that Gymnasium does not have, or not in this form."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from clew.errors import UserError

GIF_PIXELS = 320
GIF_FRAMES = 5_000


class FrameSkip(gymnasium.Wrapper):
    """Takes every action several times and sums the rewards; stops where the episode ends.

    Gymnasium has none: its `MaxAndSkipObservation` takes the maximum over two frames besides,
    as is right for Atari alone.
    """

    def __init__(self, env: gymnasium.Env, frames: int):
        super().__init__(env)
        self.frames = frames

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The last observation of up to `frames` steps, with the sum of their rewards."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        total = float(reward)
        for _ in range(self.frames - 1):
            if terminated or truncated:
                break
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
        return observation, total, terminated, truncated, info


class EpisodeGif(gymnasium.Wrapper):
    """Films every n-th episode, the first one included, as `episode-000000.gif` in a folder.

    One picture an observation, its final one too. Gymnasium's `RecordVideo` needs moviepy and
    ffmpeg and keeps whole frames; this needs Pillow, which Matplotlib brings along, and keeps
    pictures of at most 320 pixels a side with 256 colours, at most 5,000 an episode. An
    environment that is closed within an episode leaves the film of what there was.

    Args:
        env: an environment with the render mode "rgb_array".
        folder: where to write; made if it is not there.
        every: n.

    Raises:
        UserError: the environment renders no arrays.
    """

    def __init__(self, env: gymnasium.Env, folder: str | Path, every: int):
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise UserError(
                f"a video needs the render mode 'rgb_array', this one's is {env.render_mode!r}"
            )
        self.folder, self.every = Path(folder), every
        self._episode, self._frames = -1, []

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Opens an episode and films its first observation."""
        self._write()
        self._episode += 1
        answer = self.env.reset(**options)
        self._film()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a step and films it."""
        answer = self.env.step(action)
        self._film()
        if answer[2] or answer[3]:
            self._write()
        return answer

    def close(self) -> None:
        """Writes what was filmed."""
        self._write()
        super().close()

    def _film(self) -> None:
        if self._episode % self.every or len(self._frames) >= GIF_FRAMES:
            return
        picture: Any = self.env.render()
        image = Image.fromarray(np.asarray(picture, np.uint8))
        image.thumbnail((GIF_PIXELS, GIF_PIXELS))
        self._frames.append(image.quantize(256))

    def _write(self) -> None:
        if not self._frames:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        milliseconds = max(20, round(1000 / float(self.env.metadata.get("render_fps") or 30)))
        first, *others = self._frames
        path = self.folder / f"episode-{self._episode:06d}.gif"
        first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0)
        self._frames = []
