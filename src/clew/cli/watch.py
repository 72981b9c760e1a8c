"""`clew watch`: makes a video of an episode, or plays it in the terminal."""

from dataclasses import dataclass
from typing import Literal

from clew.cli.on_run import RunOptions, parse_run, shared

ABOUT = """Plays an episode with a trained agent and writes it as a video: the task, and below it
the value, the policy, and which past observations the present decision rests on."""


@dataclass(frozen=True)
class WatchCommand(RunOptions):
    """Options of `clew watch`."""

    out: str = ""
    """The video, a .gif or .mp4 file; by default watch.gif in the run's folder."""
    terminal: bool = False
    """Play in the terminal; a video is then written only if --out is given."""
    episodes: int = 1
    """Number of episodes, shown one after another."""
    actions: Literal["greedy", "sampled"] = "greedy"
    """How actions are chosen."""
    influence: Literal["occlusion", "gradient", "none"] = "occlusion"
    """How to find what a decision rests on: by occlusion or by gradients; none leaves it out, which
    is faster."""
    fps: float = 10.0
    """Steps shown per second."""
    max_frames: int = 500
    """Most steps of an episode to show; those of a longer one are spread evenly."""
    max_steps: int = 10_000
    """Steps after which an episode is cut off."""
    seed_index: int = 0
    """Which of a run's seeds, from 0."""


def main(args: list[str]) -> int:
    """Plays, and prints the path of the video."""
    command = parse_run(WatchCommand, args, command="watch", about=ABOUT)
    from clew.watch import Viewing, play_run, watch_run  # start: JAX takes a second

    viewing = Viewing(**shared(command, Viewing), greedy=command.actions == "greedy")
    if command.terminal:
        play_run(command.run, viewing, trust=command.trust)
    if command.out or not command.terminal:
        video = watch_run(command.run, viewing, command.out, trust=command.trust)
        print(f"video: {video}")
    return 0
