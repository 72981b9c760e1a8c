"""What the report knows of Makkink (2021) beyond the numbers of Appendix C."""

from typing import NamedTuple

NAME = "makkink/"
"""How the names of its editions begin."""


class Part(NamedTuple):
    """One of the three experiments."""

    title: str
    table: str
    axis: str


PARTS = {
    "length": Part("Memory length", "Table C.1", "context length"),
    "size": Part("Memory size", "Table C.2", "context size"),
    "distributed": Part("Distributed memory", "Table C.3", "context (length, size)"),
}

TITLES = {
    "lstm": "LSTM",
    "transformer-xl": "Transformer-XL",
    "gtrxl": "GTrXL",
    "rezero": "ReZero",
    "universal": "Universal Transformer",
    "integrated": "Integrated Transformer",
    "none": "No Memory",
}
"""Our names to the thesis's."""

PARAMETERS = {
    "lstm": 42051,
    "transformer-xl": 33891,
    "gtrxl": 83811,
    "rezero": 33636,
    "universal": 34020,
    "integrated": 83685,
}
"""Table 3.1; with one bit of context."""

TABLE_4_1 = {
    "length": (0.043, 0.832, 0.292, 0.856, 0.441, 0.645, 0.721),
    "size": (0.015, 0.310, 0.044, 0.150, 0.061, 0.083, 0.189),
    "distributed": (0.245, 0.649, 0.381, 0.443, 0.327, 0.335, 0.392),
}
ORDER_4_1: tuple[str, ...] = (
    "none",
    "lstm",
    "transformer-xl",
    "gtrxl",
    "rezero",
    "universal",
    "integrated",
)
"""Of the columns above."""

EPISODES = 10_000
"""Of every training."""
SEEDS, MANY_SEEDS = 3, 30
MANY = ("length-20", "length-70", "size-5", "size-10")
"""Settings that were run with 30 seeds. Tables C.1 and C.2 show those runs: 0.934, for example, is
no mean of three returns that are each a mean over 100 episodes, and t-tests of their means and
deviations with 30 seeds give the p-values that the thesis prints. (GTrXL's 0.808 and 0.870 at
lengths 5 and 10 are no such means either; nothing is said of them, so they are taken for three
seeds, which makes the tests careful.)"""

TESTS = (
    ("length-20", "gtrxl", "lstm", 0.459),
    ("length-20", "integrated", "lstm", 0.733),
    ("length-70", "universal", "gtrxl", 0.081),
    ("length-70", "integrated", "gtrxl", 0.087),
    ("size-5", "lstm", "integrated", 0.002),
    ("size-10", "lstm", "integrated", 0.001),
)
"""The t-tests of sections 4.1.1 and 4.2.1: setting, two models, p."""


def published_seeds(model: str, setting: str) -> int:
    """How many seeds a cell of Appendix C is a mean of."""
    return MANY_SEEDS if setting in MANY and model != "none" else SEEDS


def table_4_1(part: str, model: str) -> float | None:
    """What Table 4.1 prints for a model, or None."""
    numbers = dict(zip(ORDER_4_1, TABLE_4_1.get(part, ()), strict=False))
    return numbers.get(model)


def part_of(setting: str) -> str:
    """The experiment that a setting belongs to, from its name."""
    return setting.partition("-")[0]


def label_of(setting: str) -> str:
    """How the thesis's table calls a setting: "20", "5" or "(30, 7)"."""
    numbers = setting.split("-")[1:]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"
