"""bsuite's memory chain and Makkink's distributed memory, each transcribed as plainly as possible
from what its published code does at each call."""

import numpy as np

Answer = tuple[list[float], float, bool]


class MemoryChainOracle:
    """One episode of bsuite's task."""

    def __init__(self, memory_length: int, context: list[int], query: int):
        self.memory_length = memory_length
        self.context = context
        self.query = query
        self.time = 0

    def look(self) -> list[float]:
        """The observation of the present time."""
        seen = [float(np.float32(1 - self.time / self.memory_length)), 0.0]
        if self.time == self.memory_length - 1:
            seen[1] = float(self.query)
        for bit in self.context:
            if self.time > 0:
                seen.append(0.0)
            elif bit == 1:
                seen.append(1.0)
            else:
                seen.append(-1.0)
        return seen

    def reset(self) -> list[float]:
        """Looks without advancing time."""
        return self.look()

    def step(self, action: int) -> Answer:
        """Looks first and then advances time; observation, reward, terminated."""
        seen = self.look()
        self.time += 1
        if self.time <= self.memory_length:
            return seen, 0.0, False
        if action == self.context[self.query]:
            return seen, 1.0, True
        return seen, -1.0, True


class DistributedMemoryOracle:
    """One episode of the task that Makkink based on bsuite's."""

    def __init__(self, memory_length: int, context: list[int], times: list[int]):
        self.memory_length = memory_length
        self.context = context
        self.times = times
        self.time = 0
        self.shown = 0

    def look(self) -> list[float]:
        """The observation of the present time; counts the bits that it shows."""
        seen = [float(np.float32(1 - self.time / self.memory_length)), 0.0]
        seen += [0.0] * len(self.context)
        if self.time in self.times:
            seen[2 + self.shown] = 1.0 if self.context[self.shown] == 1 else -1.0
            self.shown += 1
        return seen

    def reset(self) -> list[float]:
        """Looks and advances time."""
        seen = self.look()
        self.time += 1
        return seen

    def step(self, action: int) -> Answer:
        """Looks and advances time; observation, reward, terminated."""
        seen = self.look()
        self.time += 1
        if self.time <= self.memory_length:
            return seen, 0.0, False
        ones, zeros = self.context.count(1), self.context.count(0)
        if (ones > zeros and action == 1) or (ones < zeros and action == 0):
            return seen, 1.0, True
        return seen, -1.0, True
