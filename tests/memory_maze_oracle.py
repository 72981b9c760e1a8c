"""A player of Memory Maze with full information: it takes the shortest way to the wanted ball."""

from collections import deque
from typing import Any

import numpy as np

FORWARD, LEFT, RIGHT, FORWARD_LEFT, FORWARD_RIGHT = 1, 2, 3, 4, 5
STRAIGHT, WIDE = np.cos(0.25), np.cos(0.9)


def action_towards(seen: dict[str, Any]) -> int:
    """The first action of the shortest way, by the extra observables alone."""
    here, there = _cell(seen["agent_pos"]), _cell(seen["target_pos"])
    way = shortest_way(seen["maze_layout"], here, there)
    aim = np.array(way[1]) + 0.5 if len(way) > 2 else seen["target_pos"]
    wanted = aim - seen["agent_pos"]
    wanted = wanted / max(float(np.linalg.norm(wanted)), 1e-6)
    ahead = np.asarray(seen["agent_dir"], float)
    cosine = float(ahead @ wanted)
    leftwards = ahead[0] * wanted[1] - ahead[1] * wanted[0] > 0
    if cosine > STRAIGHT:
        return FORWARD
    if cosine > WIDE:
        return FORWARD_LEFT if leftwards else FORWARD_RIGHT
    return LEFT if leftwards else RIGHT


def shortest_way(
    layout: np.ndarray, here: tuple[int, int], there: tuple[int, int]
) -> list[tuple[int, int]]:
    """The cells (x, y) of a shortest way, both ends included, by breadth-first search."""
    came: dict[tuple[int, int], tuple[int, int]] = {there: there}
    waiting = deque([there])
    while waiting and here not in came:
        x, y = waiting.popleft()
        for near in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            inside = 0 <= near[0] < layout.shape[1] and 0 <= near[1] < layout.shape[0]
            if inside and near not in came and layout[near[1], near[0]]:
                came[near] = (x, y)
                waiting.append(near)
    way = [here]
    while way[-1] != there:
        way.append(came[way[-1]])
    return way


def _cell(position: np.ndarray) -> tuple[int, int]:
    return int(position[0]), int(position[1])
