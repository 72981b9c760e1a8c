"""The site's page of each memory: a hook of mkdocs that builds them from existing sources.

The equation, source and options come from the class's docstring; the size of the state, its
computation and the advice on when to use it come from tables of docs/memories.md; the costs come
from the memory's shapes, the scores from the rows of results/. Nothing is copied into a file, so no
page can be out of date.
"""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from clew.cli.models import INPUT_SIZE, model_costs
from clew.lab.grid import read_results
from clew.memory import MEMORIES, options_of
from clew.report.document import counted
from clew.stats import bootstrap_interval

ROOT = Path(__file__).parents[1]
OVERVIEW = "memories.md"
EVIDENCE = ("initial-weights", "pramanik-tmaze-published", "makkink-repaired")
RUNS = ("first-example", "gymnasium-tasks", "tmaze-120")
PICTURES = ("inspect-tmaze-20", "inspect-tmaze-120", "pramanik-tmaze-published")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds a page for each memory, to the files and to the navigation."""
    scores = [*_study_scores(), *_run_scores()]
    for name in MEMORIES:
        files.append(File.generated(config, _source(name), content=page(name, scores)))
    for picture in _pictures():
        if not files.get_file_from_path(picture):
            files.append(File.generated(config, picture, abs_src_path=str(ROOT / picture)))
    add_to(config.nav or [])
    return files


def add_to(nav: list[dict[str, list[Any]]]) -> None:
    """Adds the pages to the navigation, after the overview."""
    pages = [{kind.__name__: _source(name)} for name, kind in MEMORIES.items()]
    for group in nav:
        for lines in group.values():
            if OVERVIEW in lines:
                lines[lines.index(OVERVIEW) + 1 : lines.index(OVERVIEW) + 1] = pages


def page(name: str, scores: list[dict[str, str]]) -> str:
    """The text of a memory's page, without advice if the overview does not have the memory.

    Args:
        name: in `MEMORIES`.
        scores: rows of results, of all memories.
    """
    kind = MEMORIES[name]
    computes, size = _row(name, "## All of them", 2)
    use, but = _row(name, "## Which one to use", 2)
    letters = "[what the letters mean](../memories.md#all-of-them)"
    lines = [
        f"# {kind.__name__}",
        f"**`{name}`**: {computes}" if computes else f"**`{name}`**",
        *(["## When to use it", f"Use it {use}. Keep in mind: {but}."] if use else []),
        "## State and cost",
        *([f"A layer's state: {size} floats ({letters})."] if size else []),
        _table([_costs(name)]),
        "## Train one",
        f"```sh\nclew train --env-options corridor_length=10 --memory {name}\n"
        f"clew models {name}    # its options and what they cost\n```",
        "Options and their defaults: "
        + ", ".join(f"`{option}={value}`" for option, value in options_of(name).items())
        + ".",
        "## Equation, options, source",
        reference(name),
        "## Scores",
        _scores(name, scores),
        *_shown(name),
    ]
    return "\n\n".join(lines)


def reference(name: str) -> str:
    """Directives that mkdocstrings replaces by the docstrings of a memory's class and attention."""
    kind = MEMORIES[name]
    options = "    options:\n      members: []\n      heading_level: 3"
    file = inspect.getmodule(kind)
    named = f"`{kind.__name__}`" + str(inspect.getdoc(kind))
    shown = [
        part
        for part, its in inspect.getmembers(file, inspect.isclass)
        if its.__module__ == kind.__module__ and f"`{part}`" in named
    ]
    shown.sort(key=named.index)
    return "\n\n".join(f"::: {kind.__module__}.{part}\n{options}" for part in shown)


def _source(name: str) -> str:
    return f"memories/{name}.md"


def _costs(name: str) -> dict[str, str]:
    """The costs of a memory at its default options, with headings."""
    costs = model_costs(name, INPUT_SIZE, {})
    return {
        f"at its defaults, {INPUT_SIZE} inputs": f"`{name}`",
        "parameters": f"{costs['parameters']:,}",
        "state (floats)": f"{costs['state_floats']:,}",
        "state (bytes)": f"{costs['state_bytes']:,}",
        "multiply-adds a step": f"{costs['multiply_adds']:,}",
    }


def _scores(name: str, scores: list[dict[str, str]]) -> str:
    found = [{k: v for k, v in row.items() if k != "memory"} for row in scores]
    mine = [row for row, full in zip(found, scores, strict=True) if full["memory"] == name]
    if not mine:
        return "No result of the repository has this memory yet."
    note = "Means over seeds with 95% bootstrap intervals where there are three or more."
    return f"{_table(mine)}\n\n{note} The pages of the results have the commands."


def _study_scores() -> Iterator[dict[str, str]]:
    """A row for each model and setting of the studies in results/."""
    for folder in EVIDENCE:
        path = ROOT / "results" / folder
        models = json.loads((path / "study.json").read_text())["models"]
        cells: dict[tuple[str, str, str], list[float]] = {}
        for row in read_results(path):
            key = (row["model"], row["setting"], row["score"])
            cells.setdefault(key, []).append(row["mean"])
        for (model, setting, score), values in cells.items():
            memory = models[model]["memory"] if model in models else model.split("-")[0]
            if memory in MEMORIES:
                yield _score(memory, folder, f"{model}, {setting}", score, values)


def _run_scores() -> Iterator[dict[str, str]]:
    """A row for each run in results/."""
    for folder in RUNS:
        for path in sorted((ROOT / "results" / folder).glob("*/summary.json")):
            summary = json.loads(path.read_text())
            score = "success" if "success" in summary["final"] else "return"
            values = summary["final"][score]["per_seed"]
            what = f"{path.parent.name} ({summary['env']})"
            yield _score(summary["memory"], folder, what, score, values)


def _score(memory: str, folder: str, what: str, score: str, values: list[float]) -> dict[str, str]:
    mean = sum(values) / len(values)
    shown = f"{mean:.3g}"
    if len(values) > 2:
        interval = bootstrap_interval(values, seed=0)
        shown += f" [{interval.low:.3g}, {interval.high:.3g}]"
    link = f"[{folder}](../results/{folder}/README.md)"
    seeds = f"{score} {shown}, {counted(len(values), 'seed')}"
    return {"memory": memory, "result": link, "what": what, "mean over seeds": seeds}


def _pictures() -> list[str]:
    """Pictures by `clew inspect` of what trained agents remember."""
    found = [path for folder in PICTURES for path in (ROOT / "results" / folder).glob("*.png")]
    return [str(path.relative_to(ROOT)) for path in found if _drawn(path) in MEMORIES]


def _drawn(picture: Path) -> str:
    """The memory that a picture shows, "" if it shows none or several."""
    return picture.stem.removeprefix("inspect-").split("-")[0]


def _shown(name: str) -> list[str]:
    for picture in _pictures():
        if _drawn(Path(picture)) == name:
            folder = Path(picture).parts[1]
            return [
                "## What a trained one attends to",
                f"![What an agent remembers, by clew inspect](../{picture})",
                f"From [{folder}](../results/{folder}/README.md); "
                "[how to read it](../inspect.md#how-to-read-it).",
            ]
    return []


def _row(name: str, heading: str, cells: int) -> list[str]:
    """The first cells of a memory's row in the table below a heading of the overview."""
    text = (ROOT / "docs" / OVERVIEW).read_text()
    match = re.search(rf"^\| `{name}` \|(.*)\|$", text[text.index(heading) :], re.MULTILINE)
    found = [cell.strip() for cell in match[1].split("|")] if match else [""] * cells
    return [cell.replace("](", "](../") for cell in found[:cells]]


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
