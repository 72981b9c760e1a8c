"""Which memory for what, by what rows of `results/` show; `clew advise` and docs/which-memory.md.

The advice is `advice.toml`, one table for each kind of thing that may have to be remembered. What
is not known is said so.
"""

import tomllib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple


class Need(NamedTuple):
    """One kind of thing that may have to be remembered."""

    title: str
    asks: str
    """How such a task looks."""
    tasks: tuple[str, ...]
    """Names of tasks of this kind, or how they begin."""
    advice: str
    why: str
    """What was measured."""
    limits: str
    """What was not."""
    evidence: str
    """The folder of results/, empty where there are no rows."""
    command: str


@cache
def _all() -> dict[str, Any]:
    text = (resources.files("clew.lab") / "advice.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def needs() -> list[Need]:
    """All of them, those with evidence first."""
    return [Need(**{**one, "tasks": tuple(one["tasks"])}) for one in _all()["needs"]]


def needs_of(task: str) -> list[Need]:
    """Those of a task, by its name; none for a task that nothing is known of.

    Names with a colon are beginnings of those of a bridge: versions and sizes follow.
    """

    def known(name: str) -> bool:
        return task.startswith(name) if ":" in name else task == name

    return [need for need in needs() if any(map(known, need.tasks))]


def page() -> str:
    """The page of the documentation."""
    parts = ["# Which memory?", _all()["before"].strip()]
    rows = [f"| [{need.title}](#{_anchor(need.title)}) | {need.advice} |" for need in needs()]
    parts.append("\n".join(["| what has to be remembered | take |", "|---|---|", *rows]))
    for need in needs():
        known = f" ([rows](../results/{need.evidence}/README.md))" if need.evidence else ""
        parts += [
            f"## {need.title}",
            f"*{need.asks[0].upper()}{need.asks[1:]}.*",
            f"**Take** {need.advice}.",
            f"{need.why}{known}",
            need.limits,
            f"```sh\n{need.command}\n```",
        ]
    return "\n\n".join([*parts, _all()["after"].strip()]) + "\n"


def _anchor(title: str) -> str:
    """The link to a heading, as the site makes it."""
    return title.lower().replace(",", "").replace(" ", "-")
