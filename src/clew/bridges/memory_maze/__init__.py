"""Memory Maze (Pasukonis et al., 2022) for Gymnasium; needs `pip install 'clew[memory-maze]'`."""

from clew.bridges.memory_maze.environment import CONTROL_RATES, SIZES, MemoryMazeEnv
from clew.bridges.memory_maze.packages import load_tasks, require_packages

__all__ = ["CONTROL_RATES", "SIZES", "MemoryMazeEnv", "load_tasks", "require_packages"]
