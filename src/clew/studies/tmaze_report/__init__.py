"""The report of the T-Maze study: its figures, claims, costs; see `clew.studies.report`."""

from clew.studies.tmaze_report.page import is_tmaze, tmaze_blocks

__all__ = ["is_tmaze", "tmaze_blocks"]
