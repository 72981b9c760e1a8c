"""The permutation task in plain Python, from its docstring."""


class PermutationOracle:
    """One episode."""

    def __init__(self, order: list[int], penalty: float):
        self.order, self.penalty = order, penalty
        self.played: list[int] = []
        self.time = self.correct = self.forbidden = 0

    def observation(self) -> list[float]:
        """Card shown, cards played, whose turn it is."""
        n = len(self.order)
        shown = [float(self.time < n and self.order[self.time] == card) for card in range(n)]
        return [*shown, *(float(card in self.played) for card in range(n)), float(self.time >= n)]

    def mask(self) -> list[bool]:
        """The allowed actions."""
        n = len(self.order)
        if self.time < n:
            return [False] * n + [True]
        return [card not in self.played for card in range(n)] + [False]

    def step(self, action: int) -> tuple[float, bool]:
        """Reward, and whether the episode ended."""
        n, reward = len(self.order), 0.0
        if not self.mask()[action]:
            reward, self.forbidden = -self.penalty, self.forbidden + 1
        elif action < n:
            right = self.order[self.time - n] == action
            self.played.append(action)
            self.correct += right
            reward = 1 / n if right else 0.0
        self.time += 1
        return reward, self.time == 2 * n
