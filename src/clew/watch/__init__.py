"""Watching a trained agent: an episode as a video, with the value, the policy and its memory.

    from clew.watch import Viewing, watch_run

    watch_run("runs/maze", Viewing(episodes=2, greedy=False), "maze.gif")

Three parts can be used alone: `recordings` of a task (`clew.interact.task.Task`) plays its
episodes, though any other loop can fill in a `Recording`; a `Film` is the frames of a recording;
`write_video` writes frames to a file.
"""

from clew.interact.episodes import Recording
from clew.watch.film import Caption, Film, shown_steps
from clew.watch.influence import influences
from clew.watch.run import Viewing, play_run, watch_run
from clew.watch.terminal import play, text_frame
from clew.watch.video import write_video

__all__ = [
    "Caption",
    "Film",
    "Recording",
    "Viewing",
    "influences",
    "play",
    "play_run",
    "shown_steps",
    "text_frame",
    "watch_run",
    "write_video",
]
