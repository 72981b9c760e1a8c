"""The division of the slow tests into tenths, and the report on one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slow_tenth import DEADLINE, TENTHS, tenth_of, turned

TESTS = Path(__file__).parent
MODULE = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("n", range(40))
def test_slow(n): assert n != {failing}

def test_fast(): raise AssertionError
"""
IDS = [f"test_it.py::test_slow[{n}]" for n in range(40)]


def run(folder: Path, number: int, *options: str, failing: int = -1) -> tuple[int, list[str]]:
    """The exit code and the lines of a session with the plugin."""
    (folder / "test_it.py").write_text(MODULE.format(failing=failing))
    environment = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")}
    environment.pop(DEADLINE, None)
    session = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "slow_tenth"]
    ran = subprocess.run(
        [sys.executable, *session, "-o", "markers=slow", "--slow-tenth", str(number), *options],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout.splitlines()


@pytest.mark.slow
def test_a_tenth_runs_its_slow_tests_alone(tmp_path: Path) -> None:
    """In two workers; the counts come before pytest's own line, which stays the last."""
    code, lines = run(tmp_path, 1003, "-n", "2")
    count = sum(tenth_of(test) == 3 for test in IDS)
    assert code == 0 and 0 < count < 20
    assert any("slow tests: tenth 3, of 0 to 9" in line for line in lines)
    said = f"{count} tests: {count} passed, 0 failed, 0 error, 0 skipped, 0 without time"
    assert said in lines
    assert f" {count} passed" in lines[-1]


def test_a_failure_fails(tmp_path: Path) -> None:
    """As in any session."""
    code, lines = run(tmp_path, tenth_of(IDS[7]), failing=7)
    assert code == 1 and "1 failed" in lines[-1]


def test_what_had_no_time_is_named(tmp_path: Path) -> None:
    """It is not a failure, and another order puts it first the next time."""
    code, lines = run(tmp_path, 3, "--slow-minutes", "0")
    late = {line.removeprefix("without time: ") for line in lines if "without time: " in line}
    assert code == 0 and late == {test for test in IDS if tenth_of(test) == 3}


def test_the_order_of_files_turns() -> None:
    """Each of them comes first at some commit."""
    files = [f"tests/test_{name}.py" for name in "abc"]
    assert {turned(files, TENTHS * number + 4)[0] for number in range(20)} == set(files)


def test_tenths_are_about_as_large() -> None:
    """By a hash that is the same in every process."""
    found = [tenth_of(f"tests/test_{n}.py::test_it[{n}]") for n in range(2_000)]
    assert all(150 < found.count(tenth) < 250 for tenth in range(TENTHS))
    assert tenth_of("tests/test_faults.py::test_a_short_campaign_loses_nothing") == 0
