"""Shows a run's agent in a video or in the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from clew.errors import Settings, require_at_least, require_choice
from clew.inspect.run import describe_task, with_whole_gradient
from clew.interact.episodes import Recording
from clew.interact.task import PlayConfig
from clew.run import folder, machine
from clew.run.config import require_types
from clew.run.load import load_agent
from clew.watch.film import Caption, Film, shown_steps
from clew.watch.influence import WAYS, influences
from clew.watch.terminal import play
from clew.watch.video import check_fps, check_video, write_video


@dataclass(frozen=True)
class Viewing(Settings):
    """Settings for watching an agent."""

    episodes: int = 1
    """Number of episodes, shown one after another."""
    seed: int = 0
    """Seed of the episodes and samples."""
    greedy: bool = True
    """Take the most probable action, instead of sampling from the policy."""
    seed_index: int = 0
    """Which of the run's seeds, from 0."""
    checkpoint: str = ""
    """Name or update of a checkpoint, or best, the best agent so far; by default the newest."""
    influence: Literal["occlusion", "gradient", "none"] = "occlusion"
    """How to find what a decision rests on; none leaves it out, which is faster."""
    max_frames: int = 500
    """Most steps of an episode to show; those of a longer one are spread evenly."""
    max_steps: int = 10_000
    """Steps after which an episode is cut off."""
    fps: float = 10.0
    """Frames per second."""

    def validate(self) -> None:
        require_types(self)
        for name in ("episodes", "max_frames", "max_steps"):
            require_at_least(name, getattr(self, name), 1)
        for name in ("seed", "seed_index"):
            require_at_least(name, getattr(self, name), 0)
        require_choice("influence", self.influence, [*WAYS, "none"])
        check_fps(self.fps)


class Watched(NamedTuple):
    """An episode with everything that is shown of it."""

    recording: Recording
    caption: Caption
    influence: Float[np.ndarray, "time time"] | None
    gamma: float
    """The discount of the agent's learner."""


def watch_run(
    path: str | Path, viewing: Viewing | None = None, out: str | Path = "", *, trust: bool = False
) -> Path:
    """Writes a video of a run's agent.

    Args:
        path: the run's folder or name.
        viewing: the settings.
        out: the .gif or .mp4 file; by default watch.gif in the run's folder.
        trust: consent to import the code that the run's settings name; see `clew.run.trust`.

    Returns:
        The file.

    Raises:
        UserError: if there is no such run, seed or checkpoint, or the file cannot be written.
    """
    viewing = Viewing() if viewing is None else viewing
    viewing.validate()
    found = folder.find_run(path)
    place = Path(out) if out else found / "watch.gif"
    check_video(place, viewing.fps)
    films = [
        Film(
            seen.recording,
            seen.caption,
            seen.influence,
            way=viewing.influence,
            gamma=seen.gamma,
            max_frames=viewing.max_frames,
        )
        for seen in watched(found, viewing, trust=trust)
    ]
    return write_video(films, place, viewing.fps)


def play_run(path: str | Path, viewing: Viewing | None = None, *, trust: bool = False) -> None:
    """Plays a run's agent in the terminal.

    Raises:
        UserError: if there is no such run, seed or checkpoint, or the task cannot be shown as text.
    """
    viewing = Viewing() if viewing is None else viewing
    viewing.validate()
    for seen in watched(path, viewing, trust=trust):
        play(*seen[:3], fps=viewing.fps, max_frames=viewing.max_frames)


def watched(path: str | Path, viewing: Viewing, *, trust: bool = False) -> Iterator[Watched]:
    """Plays the episodes, and finds the observations that their decisions rest on.

    Raises:
        UserError: if there is no such run, seed or checkpoint.
    """
    machine.use_compilation_cache()
    loaded = load_agent(path, viewing.seed_index, viewing.checkpoint, trust=trust)
    config, agent = loaded.config, loaded.agent
    explain = None
    if viewing.influence != "none":
        explain = influences(with_whole_gradient(agent, config, loaded.task), viewing.influence)
    steps = loaded.update * config.steps_per_update
    name = loaded.path.name
    if config.seeds > 1:
        name += f", seed {viewing.seed_index}"
    how = "greedy" if viewing.greedy else "sampled"
    playing = PlayConfig(viewing.episodes, viewing.greedy, viewing.max_steps, viewing.seed)
    played = loaded.task.recordings(agent, playing, loaded.statistics)
    for number, recording in enumerate(played, start=1):
        about = f"{config.memory} on {describe_task(config)}, {steps:,} steps, {how}"
        if viewing.episodes > 1:
            about += f", episode {number} of {viewing.episodes}"
        shares = None
        if explain is not None and not isinstance(recording.observations, dict):
            shares = explain(recording, shown_steps(recording.length, viewing.max_frames))
        yield Watched(recording, Caption(name, about), shares, config.learning.gamma)
