"""`benchmarks/one_run.py`: what each of its processes measures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "one_run.py"


@pytest.mark.slow
def test_a_process_measures_a_run() -> None:
    command = [sys.executable, str(SCRIPT), "--child", "default", "1", "one", "1"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(said.splitlines()[-1])
    assert found["devices"] == 1 and min(found[n] for n in ("rate", "product", "useful")) > 0
