"""The endless T-Maze (arXiv 2601.15086), transcribed as plainly as possible."""

import numpy as np


class EndlessTMazeOracle:
    """One episode."""

    def __init__(self, longest: int, cues: list[int], lengths: list[int], wrong: float):
        self.longest, self.wrong, self.count = longest, wrong, len(cues)
        self.ahead = list(zip(cues, lengths, strict=True))
        self.at, self.time = 0, 0

    def observation(self) -> np.ndarray:
        """The position, and the cue at the beginning of a corridor."""
        left, right = 0.0, 0.0
        if self.at == 0:
            left, right = (1.0, 0.0) if self.ahead[0][0] == 0 else (0.0, 1.0)
        return np.array([self.at / self.longest, left, right], np.float32)

    def step(self, action: int) -> tuple[float, bool, bool, dict[str, float]]:
        """Reward, terminated, truncated and the metrics."""
        self.time += 1
        cue, length = self.ahead[0]
        passed = self.count - len(self.ahead)
        if self.at == length:
            turned = action == (1, 2)[cue]
            metrics = self._metrics(passed + turned)
            if not turned:
                return self.wrong, True, False, metrics
            if len(self.ahead) == 1:
                return 1.0, True, False, metrics
            del self.ahead[0]
            self.at = 0
            return 1.0, False, self._late(), metrics
        if action == 0:
            self.at += 1
        reward = 0.0 if action == 0 else -0.01
        return reward, False, self._late(), self._metrics(passed)

    def _late(self) -> bool:
        return self.time >= 6 * (self.longest + 1) * self.count

    def _metrics(self, passed: int) -> dict[str, float]:
        return {"success": float(passed == self.count), "corridors": passed / self.count}
