"""The T-Maze of Pramanik (2023), section 5.1.1, transcribed as plainly as possible."""

from functools import cache

import numpy as np


@cache
def gray_words(bits: int) -> list[str]:
    """Every Gray code word in order, by reflection: the list, then the list backwards."""
    if bits == 0:
        return [""]
    words = gray_words(bits - 1)
    return ["0" + word for word in words] + ["1" + word for word in reversed(words)]


class TMazeOracle:
    """One episode; the observation is without its six distractors."""

    def __init__(self, corridor_length: int, time_limit: int, truncates: bool, cue: int):
        bits = 8
        while 2**bits < corridor_length:
            bits += 1
        self.words = gray_words(bits)
        self.last_position = corridor_length - 1
        self.time_limit = time_limit
        self.truncates = truncates
        self.cue = cue
        self.position = 0
        self.time = 0

    def observation(self) -> np.ndarray:
        """The two cue bits and the position."""
        cue_bits = "00"
        if self.time == 0:
            cue_bits = "01" if self.cue == 0 else "10"
        word = cue_bits + self.words[self.position]
        return np.array([float(bit) for bit in word], np.float32)

    def step(self, action: int) -> tuple[float, bool, bool, dict[str, float]]:
        """Reward, terminated, truncated and the metrics."""
        self.time += 1
        metrics = {"success": 0.0, "junction": 0.0, "timeout": 0.0}
        if self.position == self.last_position:
            metrics["junction"] = 1.0
            if action == 0 or action == 1:
                if action == self.cue:
                    metrics["success"] = 1.0
                    return 4.0, True, False, metrics
                return -1.0, True, False, metrics
        elif action == 2:
            self.position = max(self.position - 1, 0)
        elif action == 3:
            self.position = self.position + 1
            if self.position == self.last_position:
                metrics["junction"] = 1.0
        if self.time == self.time_limit:
            metrics["timeout"] = 1.0
            return -0.1, not self.truncates, self.truncates, metrics
        return -0.1, False, False, metrics
