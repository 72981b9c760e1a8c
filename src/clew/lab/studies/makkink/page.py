"""The report of Makkink's (2021) study: its tables, names and tests, and its claims."""

from functools import partial

from clew.lab.studies.makkink import grid
from clew.lab.studies.makkink.claims import claim_blocks
from clew.lab.studies.report.data import (
    Page,
    Part,
    Publication,
    PublishedTest,
    StudyData,
    command_of,
)
from clew.stats import Spread

PARTS = {
    "length": Part("Memory length", "context length", "Table C.1"),
    "size": Part("Memory size", "context size", "Table C.2"),
    "distributed": Part("Distributed memory", "context (length, size)", "Table C.3"),
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
"""Names of the models in the thesis."""

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
ORDER_4_1 = ("none", *PARAMETERS)
"""The order of the columns above."""
SEEDS, MANY_SEEDS = 3, 30
MANY = ("length-20", "length-70", "size-5", "size-10")
"""Settings that were run with 30 seeds. Tables C.1 and C.2 show those runs: 0.934, for example, is
not a mean of three returns that are each a mean over 100 episodes, and t-tests of their means and
deviations with 30 seeds give the p-values that the thesis prints. (GTrXL's 0.808 and 0.870 at
lengths 5 and 10 are not such means either; the thesis says nothing about them, so they count as
three seeds, which makes the tests conservative.)"""

TESTS = (
    PublishedTest("length-20", "gtrxl", "lstm", 0.459),
    PublishedTest("length-20", "integrated", "lstm", 0.733),
    PublishedTest("length-70", "universal", "gtrxl", 0.081),
    PublishedTest("length-70", "integrated", "gtrxl", 0.087),
    PublishedTest("size-5", "lstm", "integrated", 0.002),
    PublishedTest("size-10", "lstm", "integrated", 0.001),
)
"""The t-tests of sections 4.1.1 and 4.2.1."""
_TESTS_NOTE = (
    "The six t-tests that the thesis reports, none of them corrected. Recomputed: Welch's test "
    "of the means and deviations in Appendix C, with thirty seeds."
)
_SUMMARY_NOTE = (
    "For four models, Table 4.1 prints another mean of the length column than follows from "
    "Table C.1. Where the two differ by more than rounding, Table 4.1's number is in the last line."
)


def page_of(name: str) -> Page | None:
    """The page of an edition's grid by its name; None for other grids."""
    editions = {grid.grid_name(edition): edition for edition in grid.EDITIONS}
    if name not in editions:
        return None
    publication = Publication(
        settings=grid.study(edition=editions[name]).settings,
        part_of=part_of,
        label_of=label_of,
        parts=PARTS,
        titles=TITLES,
        expected=published(),
        episodes=grid.EPISODES,
        many_seeds=MANY,
        many_seeds_note="thirty at lengths 20 and 70 and sizes 5 and 10",
        parameters=PARAMETERS,
        parameters_table="Table 3.1",
        printed_mean=table_4_1,
        summary_table="Table 4.1",
        summary_note=_SUMMARY_NOTE,
        tests=TESTS,
        tests_note=_TESTS_NOTE,
        claims=claim_blocks,
    )
    return Page(partial(command, which=editions[name]), publication)


def command(data: StudyData, which: str) -> str:
    """The command that makes a folder of an edition."""
    parts = {part_of(setting) for setting in data.study["settings"]}
    part = parts.pop() if len(parts) == 1 else "all"
    return command_of(data, f"makkink --edition {which} --part {part}", grid.study(part, which))


def published() -> dict[tuple[str, str], Spread]:
    """Every cell of Appendix C, with which repaired editions are compared too."""
    return {
        (model, setting): Spread(
            *cell, MANY_SEEDS if setting in MANY and model != "none" else SEEDS
        )
        for part in grid.PARTS
        for (model, setting), cell in grid.published_table(part).items()
    }


def table_4_1(part: str, model: str) -> float | None:
    """The value of Table 4.1 for a model, or None."""
    numbers = dict(zip(ORDER_4_1, TABLE_4_1.get(part, ()), strict=False))
    return numbers.get(model)


def part_of(setting: str) -> str:
    """The experiment that a setting belongs to, from its name."""
    return setting.partition("-")[0]


def label_of(setting: str) -> str:
    """A setting's label in the thesis's table: "20", "5" or "(30, 7)"."""
    numbers = setting.split("-")[1:]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"
