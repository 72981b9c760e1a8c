"""An inspection as a page: PNG, SVG and a self-contained web page."""

import json
import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from clew.files import make_folder, write_text
from clew.inspect.files import to_json, write_tables
from clew.inspect.inspection import Inspection
from clew.inspect.panels import compared, panels
from clew.report.document import Block, Chart, Numbers, Text
from clew.report.figures import save_chart
from clew.report.html import page

SIZE = (4.4, 2.75)
LONGEST_LINE = 130
"""Most characters of a line above the pictures."""

ABSENT = {"gradient": ", of which categories have none", "occlusion": ""}
"""Why a method may find no influence."""

HOW_TO_READ = """The decision is the last one of each episode unless another step was chosen. The
influence on it by gradient is the norm of the derivative of the policy's logits, less their mean,
with respect to each past observation; by occlusion it is how far these logits move when that
observation is replaced. Both are shown as shares of their sum, as the mean over episodes with the
quartiles as a band. Each row of a map is one decision, and its columns are the steps before it.
Probes are linear, and tested on other episodes than they are fitted on; the dashed line is the
accuracy of always answering the most frequent class."""


class Written(NamedTuple):
    """The files of an inspection."""

    picture: Path
    """The PNG; an SVG of the same name is in the same folder."""
    html: Path
    json: Path
    tables: list[Path]


def write_inspection(found: Inspection, place: str | Path) -> Written:
    """Writes inspection.png, .svg, .html and .json, and the tables as CSV.

    Args:
        found: the numbers.
        place: folder to write to; it is created if missing.

    Raises:
        UserError: if the folder or a file cannot be written.
    """
    place = Path(place)
    make_folder(place)
    chart = chart_of(found)
    picture = save_chart(chart, {}, place)
    blocks: list[Block] = [Numbers(headline(found)), Text(" ".join(HOW_TO_READ.split())), chart]
    made_by = f"Made by clew inspect, clew {version('clew')}."
    write_text(place / "inspection.html", page(title_of(found), blocks, {}, made_by))
    write_text(place / "inspection.json", json.dumps(to_json(found)) + "\n")
    return Written(
        picture, place / "inspection.html", place / "inspection.json", write_tables(found, place)
    )


def write_comparison(several: Sequence[Inspection], place: str | Path) -> Path:
    """Writes comparison.png and .svg: several agents side by side.

    Returns:
        The path of the PNG.

    Raises:
        UserError: if the folder cannot be written.
    """
    tasks = " / ".join(dict.fromkeys(found.task for found in several))
    chart = Chart(
        name="comparison",
        title=f"What they remember: {tasks}",
        caption="",
        panels=compared(several),
        size=SIZE,
        columns=2,
    )
    make_folder(Path(place))
    return save_chart(chart, {}, Path(place))


def chart_of(found: Inspection) -> Chart:
    """The chart with all panels of an agent, and its headline."""
    lines = [title_of(found)]
    for number, what in headline(found):
        item = f"{number} {what}"
        together = len(lines) > 1 and len(lines[-1]) + len(item) < LONGEST_LINE
        lines = [*lines[:-1], f"{lines[-1]};   {item}"] if together else [*lines, item]
    return Chart(
        name="inspection",
        title="\n".join(lines),
        caption="",
        panels=panels(found),
        size=SIZE,
        columns=3,
    )


def title_of(found: Inspection) -> str:
    """The agent, its memory and its task."""
    trained = f", trained for {found.steps:,} steps" if found.steps else ""
    return f"{found.name}: {found.memory} on {found.task}{trained}".replace(":  on", " on")


def headline(found: Inspection) -> list[tuple[str, str]]:
    """The main numbers, each with a description."""
    shown = []
    for way in ("gradient", "occlusion"):
        length = found.memory_lengths[way, "policy"]
        low, half, high = length.quartiles
        what = f"steps hold {length.share:.0%} of the influence by {way}"
        what += f", the first observation {found.first_share(way):.0%}"
        if math.isnan(half):  # as for categories, or for a fully saturated agent
            shown.append(("0", f"observations move the decision by {way}{ABSENT[way]}"))
            continue
        shown.append((f"{half:.0f} ({low:.0f} to {high:.0f})", what))
    for probe in found.probes[:2]:
        if probe.steps:
            what = f"{probe.label} read from the {probe.source}, first to last step"
            first, last = probe.accuracy[0].mean, probe.accuracy[-1].mean
            shown.append((f"{first:.2f} to {last:.2f}", what))
    if "success" in found.metrics:
        shown.append((f"{found.metrics['success']:.2f}", f"success in {found.episodes} episodes"))
    return shown
