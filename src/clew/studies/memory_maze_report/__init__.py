"""The report of the Memory Maze study: its figures, claims, search; see `clew.studies.report`."""

from clew.studies.memory_maze_report.page import is_memory_maze, memory_maze_blocks
from clew.studies.memory_maze_report.sweep import best_rates

__all__ = ["best_rates", "is_memory_maze", "memory_maze_blocks"]
