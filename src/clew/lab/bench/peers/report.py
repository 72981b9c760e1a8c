"""A comparison as a whole: its text, and its data."""

from typing import Any, NamedTuple

from clew.lab.bench.medians import Median
from clew.lab.bench.peers.checks import Agreement
from clew.lab.bench.peers.compare import Row
from clew.lab.bench.peers.plan import Plan
from clew.lab.bench.peers.tables import (
    checks_table,
    memory_tables,
    not_measured,
    peers_ahead,
    time_tables,
)
from clew.lab.costs.tables import Grid


class Comparison(NamedTuple):
    """Everything that was found in one run."""

    machine: dict[str, Any]
    plan: Plan
    versions: dict[str, str]
    product_rates: list[float]
    """floating-point operations per second of matrix products, before each family and at the end"""
    agreements: list[Agreement]
    rows: list[Row]


def grids(found: Comparison) -> list[Grid]:
    """All tables."""
    return [
        checks_table(found.agreements, found.versions),
        *time_tables(found.rows),
        *memory_tables(found.rows),
    ]


def sentences(found: Comparison) -> list[str]:
    """Where a peer is ahead, and what could not be measured."""
    ahead, missing = peers_ahead(found.rows), not_measured(found.rows)
    return (ahead or ["No peer is ahead of clew at any point."]) + missing


def heading(found: Comparison) -> str:
    """On what it was measured."""
    plan, machine, rates = found.plan, found.machine, sorted(found.product_rates)
    return (
        f"Width {plan.width}, {plan.envs} environments learning, {plan.actors} acting; medians of "
        f"{plan.rounds} turns. {machine['cores']} cores of {machine['processor']}, "
        f"{rates[0] / 1e9:,.0f} to {rates[-1] / 1e9:,.0f} GFLOP/s in matrix products meanwhile"
    )


def markdown(found: Comparison) -> str:
    """All tables and sentences."""
    parts = [heading(found) + ".", "", *(grid.markdown() for grid in grids(found))]
    parts.append("**Where a peer is ahead, and what was not measured**\n")
    return "\n".join(parts + [f"- {line}" for line in sentences(found)]) + "\n"


def as_data(found: Comparison) -> dict[str, Any]:
    """For JSON; each row also says who is ahead, and how fast the machine was meanwhile."""
    rates = found.product_rates
    around = zip(rates, rates[1:], strict=False)
    families = dict.fromkeys(row.family for row in found.rows)
    meanwhile = {f: (a + b) / 2 for f, (a, b) in zip(families, around, strict=False)}
    rows = [
        row._asdict() | {"ahead": row.ahead, "product_rate": meanwhile[row.family]}
        for row in found.rows
    ]
    return found._asdict() | {"rows": rows}


def from_data(data: dict[str, Any]) -> Comparison:
    """What `as_data` made, after a way through JSON."""
    plan = data["plan"] | {"lengths": tuple(data["plan"]["lengths"])}
    return Comparison(
        data["machine"],
        Plan(**plan),
        data["versions"],
        data["product_rates"],
        [Agreement(**found) for found in data["agreements"]],
        [_row(dict(row)) for row in data["rows"]],
    )


def _row(data: dict[str, Any]) -> Row:
    del data["ahead"], data["product_rate"]
    for name in ("seconds", "times_ours"):
        data[name] = data[name] and Median(**data[name])
    return Row(**data)
