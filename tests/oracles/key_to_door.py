"""Key-to-Door (Raposo et al., 2021; Ni et al., 2023), transcribed as plainly as possible."""

import numpy as np

Place = tuple[int, int]

FIRST = ["  #######  ", "  #     #  ", "  #     #  ", "  ##   ##  ", "  #     #  ", "  #     #  "]
SECOND = ["###########", *["#         #"] * 5, "###########"]
THIRD = ["           ", "   ##d##   ", *["   #   #   "] * 3, "   #####   ", "           "]
ROOMS = [[*FIRST, "  #######  "], SECOND, THIRD]
RED_GREEN_BLUE = {
    " ": (204, 204, 204),
    "#": (25, 25, 25),
    "k": (159, 81, 44),
    "a": (140, 178, 0),
    "d": (134, 206, 235),
    "i": (255, 255, 255),
    "+": (228, 148, 109),
}


class KeyToDoorOracle:
    """One episode."""

    def __init__(self, distractor: int, key: Place, place: Place, apples: list[Place]):
        self.ends = [15, 15 + distractor, 25 + distractor]
        self.key, self.place, self.trees = key, place, set(apples)
        self.away: dict[Place, int] = {}
        self.phase, self.time, self.picked = 0, 0, 0
        self.has_key, self.opened, self.lit = False, False, False

    def step(self, action: int) -> tuple[float, bool, dict[str, float]]:
        """Reward, terminated and the metrics."""
        row, column = self.place
        up, left = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}.get(action, (0, 0))
        there = (row + up, column + left)
        if self.free(there):
            self.place = there
        reward = self.earned()
        self.away = {tree: left - 1 for tree, left in self.away.items() if left > 0}
        self.time += 1
        if self.time == self.ends[self.phase] and self.phase < 2:
            self.phase += 1
            self.lit, self.place = False, (5, 5) if self.phase == 1 else (3, 5)
        metrics = {"success": self.opened, "has_key": self.has_key, "picked": self.picked}
        return reward, self.time == self.ends[2], {k: float(v) for k, v in metrics.items()}

    def free(self, place: Place) -> bool:
        """Whether one can walk there."""
        row, column = place
        if not (0 <= row < 7 and 0 <= column < 11):
            return False
        kind = ROOMS[self.phase][row][column]
        return kind != "#" and (kind != "d" or self.has_key)

    def earned(self) -> float:
        """The reward and effects of the present place."""
        self.lit = False
        if self.phase == 0 and self.place == self.key and not self.has_key:
            self.has_key = self.lit = True
        if self.phase == 1 and self.place in self.trees and not self.away.get(self.place):
            # It is away after this step, which is counted down at once, and after twenty more.
            self.away[self.place] = 22
            self.picked += 1
            return 1.0
        if self.phase == 2 and self.place == (1, 5) and not self.opened:
            self.opened = True
            return 5.0
        return 0.0

    def seen(self) -> np.ndarray:
        """The 5 x 5 places around the agent: red of all, green of all, blue of all."""
        row, column = self.place
        kinds = [[self.kind(row + y, column + x) for x in range(-2, 3)] for y in range(-2, 3)]
        colours = np.array([[RED_GREEN_BLUE[kind] for kind in line] for line in kinds])
        return np.concatenate([colours[:, :, n].ravel() for n in range(3)]) / 255

    def kind(self, row: int, column: int) -> str:
        """What is drawn at a place."""
        if not (0 <= row < 7 and 0 <= column < 11):
            return " "
        kind = ROOMS[self.phase][row][column]
        if kind == "d":
            return "d"
        if (row, column) == self.place:
            return "+"
        if self.phase == 0 and (row, column) == (0, 5) and self.lit:
            return "i"
        if self.phase == 0 and (row, column) == self.key and not self.has_key:
            return "k"
        if self.phase == 1 and (row, column) in self.trees and not self.away.get((row, column)):
            return "a"
        return kind
