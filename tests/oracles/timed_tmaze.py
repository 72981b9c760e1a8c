"""The T-Mazes of Ni et al. (2023), transcribed as plainly as possible: a map of open places."""

import numpy as np

STEPS = {0: (1, 0), 1: (0, 1), 2: (-1, 0), 3: (0, -1)}


class TimedTMazeOracle:
    """One episode; o is 0 in the passive T-Maze."""

    def __init__(self, corridor_length: int, oracle_length: int, goal: int):
        self.length, self.o, self.goal = corridor_length, oracle_length, goal
        self.junction = oracle_length + corridor_length
        sides = {(self.junction, 1), (self.junction, -1)}
        self.open = {(x, 0) for x in range(self.junction + 1)} | sides
        self.place = (oracle_length, 0)
        self.time, self.told = 0, False
        self.seen = self._look()

    def _look(self) -> np.ndarray:
        x, y = self.place
        if x == 0:
            answer = 0 if self.told else self.goal
            self.told = True
            return np.array([0, answer], np.float32)
        return np.array([1, y] if x == self.junction else [0, 0], np.float32)

    def step(self, action: int) -> tuple[float, bool, dict[str, float]]:
        """Reward, terminated and the metrics."""
        dx, dy = STEPS.get(action, (0, 0))
        there = (self.place[0] + dx, self.place[1] + dy)
        if there in self.open:
            self.place = there
        self.time += 1
        self.seen = self._look()
        metrics = {"success": 0.0, "oracle": float(self.told)}
        if self.time == self.length + 2 * self.o + 1:
            metrics["success"] = float(self.place[1] == self.goal)
            return metrics["success"], True, metrics
        late = self.place[0] < self.time - self.o
        return (-1 / self.length if late else 0.0), False, metrics
