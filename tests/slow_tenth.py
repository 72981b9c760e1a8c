"""A tenth of the slow tests for every commit: `--slow-tenth NUMBER` runs tenth NUMBER modulo 10.

The number is the commit's, so that ten consecutive commits run every slow test. A test's tenth
depends on its id alone; the number also rotates the order of the files, so that tests that did not
fit in at one commit come first at another. No test begins after `--slow-minutes`.
"""

import os
import time
import zlib

import pytest

TENTHS = 10
DEADLINE = "CLEW_SLOW_DEADLINE"
"""Environment variable: the time after which no test begins, the same in every worker."""
NO_TIME = "no time left for it"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--slow-tenth` and `--slow-minutes`."""
    parser.addoption(
        "--slow-tenth", type=int, metavar="NUMBER", help="run a tenth of the slow tests"
    )
    parser.addoption(
        "--slow-minutes", type=float, default=20.0, help="with --slow-tenth: begin none later (20)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sets the deadline before any worker starts."""
    if config.getoption("--slow-tenth") is not None:
        seconds = 60.0 * config.getoption("--slow-minutes")
        os.environ.setdefault(DEADLINE, str(time.time() + seconds))


def tenth_of(test: str) -> int:
    """The tenth that a test is in, from 0: a stable hash of its id."""
    return zlib.crc32(test.encode()) % TENTHS


def turned(files: list[str], number: int) -> list[str]:
    """The files in an order that every commit of a tenth rotates further."""
    return sorted(files, key=lambda file: zlib.crc32(f"{number // TENTHS} {file}".encode()))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the slow tests of the tenth, file by file."""
    number = config.getoption("--slow-tenth")
    if number is None:
        return
    kept: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") and tenth_of(item.nodeid) == number % TENTHS:
            kept.setdefault(item.nodeid.partition("::")[0], []).append(item)
    chosen = [item for file in turned(list(kept), number) for item in kept[file]]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test, before its fixtures are made, if the time is over."""
    if time.time() > float(os.environ.get(DEADLINE, "inf")):
        pytest.skip(NO_TIME)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reports which tenth ran, and its outcome."""
    number = terminalreporter.config.getoption("--slow-tenth")
    if number is None:
        return
    skipped = terminalreporter.getreports("skipped")
    late = [report.nodeid for report in skipped if NO_TIME in str(report.longrepr)]
    counts = {
        name: len(terminalreporter.getreports(name)) for name in ("passed", "failed", "error")
    }
    counts |= {"skipped": len(skipped) - len(late), "without time": len(late)}
    terminalreporter.section(f"slow tests: tenth {number % TENTHS}, of 0 to {TENTHS - 1}")
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    terminalreporter.write_line(f"{sum(counts.values())} tests: {said}")
    for test in late:
        terminalreporter.write_line(f"without time: {test}")
