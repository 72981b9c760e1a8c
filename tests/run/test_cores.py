"""The threads on which JAX computes, and the cores that they may use."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys
from clew.run.machine import use_threads
use_threads(int(sys.argv[1]))
import jax, numpy as np
jax.block_until_ready(jax.device_put(np.zeros(1)))
threads = [int(thread) for thread in os.listdir("/proc/self/task")]
print(json.dumps([sorted(os.sched_getaffinity(thread)) for thread in threads]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for its threads")
def test_few_threads_are_kept_on_no_core() -> None:
    # Otherwise single-threaded processes would share the first core and leave the others idle.
    found = {}
    for count in (1, 4):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(count)], capture_output=True, text=True, check=True
        )
        found[count] = json.loads(run.stdout)
        assert all(cores == sorted(os.sched_getaffinity(0)) for cores in found[count])
    assert len(found[4]) > len(found[1])
