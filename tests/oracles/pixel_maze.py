"""A pixel maze in plain loops and double precision: rays that go from square to square."""

import math

import numpy as np

PIXELS = 64
FOCAL = 32 / math.tan(math.radians(40))
SKY = (120, 160, 205)
FLOORS = ((96, 88, 78), (70, 64, 58))
WALLS = ((150, 145, 140), (158, 122, 92), (112, 132, 152), (128, 146, 112))
BALLS = ((225, 45, 45), (45, 200, 70), (60, 90, 240), (235, 215, 50), (215, 70, 220))
BALLS += ((60, 215, 220),)
MOVES = ((0, 0), (1, 0), (0, -1), (0, 1), (1, -1), (1, 1))


def first_wall(walls, x, y, dx, dy):
    """From square to square: the distance, the square, and whether its face runs north to south."""
    column, row = math.floor(x), math.floor(y)
    while True:
        to_x = ((column + (dx > 0)) - x) / dx if dx else math.inf
        to_y = ((row + (dy > 0)) - y) / dy if dy else math.inf
        if to_x < to_y:
            column += 1 if dx > 0 else -1
        else:
            row += 1 if dy > 0 else -1
        if walls[row][column]:
            return min(to_x, to_y), (row, column), to_x < to_y


def light(distance):
    return 1 / (1 + 0.12 * distance)


def pixel(u, v, hit, direction, kinds, place, heading, balls):
    """The colour of one pixel."""
    distance, square, vertical = hit
    nearest, colour = distance, None
    for number, (ball_x, ball_y) in enumerate(balls):
        x, y = ball_x - place[0], ball_y - place[1]
        depth = x * math.cos(heading) + y * math.sin(heading)
        aside = y * math.cos(heading) - x * math.sin(heading)
        if not 0.05 < depth < nearest:
            continue
        off = (u - aside / depth) ** 2 + (v - 0.15 / depth) ** 2
        size = (0.25 / depth) ** 2
        if off <= size:
            shade = (1 - 0.5 * off / size) * light(depth)
            nearest, colour = depth, [c * shade for c in BALLS[number]]
    if colour is not None:
        return colour
    if abs(v) < 0.5 / distance:
        shade = (0.8 if vertical else 1.0) * light(distance)
        return [c * shade for c in WALLS[kinds[square]]]
    if v < 0:
        return SKY
    depth = 0.5 / v
    x, y = (place[k] + depth * direction[k] for k in (0, 1))
    return [c * light(depth) for c in FLOORS[(math.floor(x) + math.floor(y)) % 2]]


def picture(walls, kinds, balls, place, heading, target):
    """The whole observation, its border included."""
    seen = np.zeros((PIXELS, PIXELS, 3))
    for column in range(PIXELS):
        u = (column + 0.5 - 32) / FOCAL
        direction = (
            math.cos(heading) - u * math.sin(heading),
            math.sin(heading) + u * math.cos(heading),
        )
        hit = first_wall(walls, *place, *direction)
        for row in range(PIXELS):
            v = (row + 0.5 - 32) / FOCAL
            border = not (2 <= row < 62 and 2 <= column < 62)
            asked = [0.7 * c for c in BALLS[target]]
            rest = (hit, direction, kinds, place, heading, balls)
            seen[row, column] = asked if border else pixel(u, v, *rest)
    return np.round(seen)


def walked(walls, place, heading, action):
    """Position and direction after an action."""
    stride, turn = MOVES[min(max(action, 0), 5)]
    heading = (heading + turn * math.pi / 6) % (2 * math.pi)
    place = list(place)
    for axis, part in ((0, math.cos(heading)), (1, math.sin(heading))):
        there = list(place)
        there[axis] += 0.5 * stride * part
        corners = [(there[0] + a, there[1] + b) for a in (-0.2, 0.2) for b in (-0.2, 0.2)]
        if not any(walls[math.floor(y)][math.floor(x)] for x, y in corners):
            place = there
    return place, heading
