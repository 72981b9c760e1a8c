"""Reports at the end of a session how many cases of each law ran, and the largest deviations."""

from collections import defaultdict

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Collects the records of the tests of the laws from all workers."""
    found: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "law" and report.when == "call":
                    law, *numbers = value  # pyright: ignore[reportGeneralTypeIssues]
                    found[law].append(tuple(numbers))
    if not found:
        return
    terminalreporter.section("laws of the memories")
    for law, runs in found.items():
        cases, values, gradients = zip(*runs, strict=True)
        terminalreporter.write_line(
            f"{law:<10}{sum(cases):>6} cases in {len(runs)} checks, largest deviation "
            f"{max(values):.1e} (values) {max(gradients):.1e} (gradients)"
        )
    total = sum(cases for runs in found.values() for cases, _, _ in runs)
    terminalreporter.write_line(f"{'all':<10}{total:>6} cases")
