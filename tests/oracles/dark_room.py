"""The dark room of Laskin et al. (2022), and trials, transcribed as plainly as possible."""

import numpy as np


class DarkRoomOracle:
    """One episode."""

    def __init__(self, size: int, time_limit: int, goal: tuple[int, int], place: tuple[int, int]):
        self.size, self.time_limit, self.goal, self.place = size, time_limit, goal, place
        self.time, self.found = 0, False

    def observation(self) -> np.ndarray:
        """The row and the column, one-hot."""
        seen = [0.0] * (2 * self.size)
        seen[self.place[0]] = 1.0
        seen[self.size + self.place[1]] = 1.0
        return np.array(seen, np.float32)

    def step(self, action: int) -> tuple[float, bool, dict[str, float]]:
        """Reward, terminated and the metrics."""
        row, column = self.place
        if action == 0 and row > 0:
            row -= 1
        elif action == 1 and row < self.size - 1:
            row += 1
        elif action == 2 and column > 0:
            column -= 1
        elif action == 3 and column < self.size - 1:
            column += 1
        self.place = (row, column)
        self.time += 1
        there = self.place == self.goal
        self.found = self.found or there
        return float(there), self.time == self.time_limit, {"found": float(self.found)}


class TrialOracle:
    """A trial: `make` builds each of its episodes, which the agent plays as one."""

    def __init__(self, make, episodes: int):
        self.make, self.episodes = make, episodes
        self.episode = make()
        self.returns: list[float] = [0.0]
        self.found: list[float] = []

    def observation(self) -> np.ndarray:
        """Of the running episode."""
        return self.episode.observation()

    def step(self, action: int) -> tuple[float, bool, bool, dict[str, float]]:
        """Reward, whether the trial ended, whether one of its episodes did, and the metrics."""
        reward, ended, metrics = self.episode.step(action)
        self.returns[-1] += reward
        if not ended:
            return reward, False, False, {}
        self.found.append(metrics["found"])
        if len(self.returns) == self.episodes:
            told = {f"return_{i + 1}": total for i, total in enumerate(self.returns)}
            told["return"] = sum(self.returns)
            told["found"] = sum(self.found) / self.episodes
            return reward, True, False, told
        self.returns.append(0.0)
        self.episode = self.make()
        return reward, False, True, {}
