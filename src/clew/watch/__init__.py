"""Watching a trained agent: an episode as a video, with value, policy and what it remembers.

    from clew.watch import Viewing, watch_run

    watch_run("runs/maze", Viewing(episodes=2, greedy=False), "maze.gif")

Three parts that can be used alone: `recordings` of a task (`clew.interact.task.Task`) plays its
episodes, and any other loop fills in a `Recording`; a `Film` is the frames of one; `write_video`
writes frames to a file.
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
