"""`benchmarks/one_run.py`: the measurement of each of its processes."""

import pytest
from benchmarks.processes import answer


@pytest.mark.slow
def test_a_process_measures_a_run() -> None:
    found = answer(["-m", "benchmarks.one_run", "--child", "default", "1", "one", "1"])
    assert found["devices"] == 1 and min(found[n] for n in ("rate", "product", "useful")) > 0
