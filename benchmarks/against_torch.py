"""How much faster a study's trainings are here than the published loop in PyTorch, on one core.

    make bench-torch

runs both by turns on the same core, each in a process of its own with one thread, GTrXL of
Makkink (2021) as published at memory lengths 20 and 70, and prints medians over the turns. Ours
are the programs that `clew study makkink` runs, three seeds in one; compiling is not counted, but
told. The rate of matrix products is this machine's at that moment.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LENGTHS, SEEDS = (20, 70), (4, 5, 10)


def measure_ours(length: int, seconds: float, core: int) -> dict[str, Any]:
    """The rate of one of the study's programs, and of matrix products."""
    os.sched_setaffinity(0, {core})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax
    import jax.numpy as jnp

    from clew.lab.bench.speed import matrix_product_rate
    from clew.lab.costs import parameters
    from clew.lab.studies.makkink import grid as makkink
    from clew.run import machine
    from clew.run.build import abstract_agent
    from clew.run.compiled import compile_program, init_run, make_parts

    machine.use_compilation_cache()
    study = makkink.study("length").only(["gtrxl"], [f"length-{length}"])
    config = study.config("gtrxl", f"length-{length}")
    parts = make_parts(config)
    began = time.perf_counter()
    program = compile_program(parts)
    compiled = time.perf_counter() - began
    state = jax.block_until_ready(program(init_run(parts, SEEDS), jnp.int32(10)))
    updates, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        state = jax.block_until_ready(program(state, jnp.int32(50)))
        updates += 50
    return {
        "parameters": parameters(abstract_agent(config, parts.stream)),
        "steps": updates * config.steps_per_update * len(SEEDS),
        "seconds": passed,
        "compile_seconds": compiled,
        "gflops": matrix_product_rate() / 1e9,
    }


def _told(command: list[str]) -> dict[str, Any]:
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    """Measures both by turns, and prints a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-python", default=".venv-torch/bin/python")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ours", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ours:
        print(json.dumps(measure_ours(given.ours, given.seconds, given.core)))
        return
    found: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for length in LENGTHS:
        turns = found[length] = {"torch": [], "clew": []}
        numbers = [str(length), str(given.seconds), str(given.core)]
        settings = ["--seconds", numbers[1], "--core", numbers[2]]
        for turn in range(given.turns):
            theirs = [given.torch_python, str(HERE / "torch_gtrxl.py"), *numbers]
            ours = [sys.executable, __file__, "--ours", numbers[0], *settings]
            turns["torch"].append(_told(theirs))
            turns["clew"].append(_told(ours))
            print(f"length {length}: turn {turn + 1} of {given.turns}", file=sys.stderr)
    rows = [_row(length, turns) for length, turns in found.items()]
    if given.json:
        print(json.dumps({"rows": rows, "turns": found}, indent=1))
        return
    for row in rows:
        print(
            f"GTrXL, length {row['length']}: PyTorch {row['torch']:,.0f} steps/s, clew "
            f"{row['clew']:,.0f}, {row['ratio']:.1f} times (turns {row['least']:.1f} to "
            f"{row['most']:.1f}), {row['gflops']:.0f} GFLOP/s of products"
        )


def _row(length: int, turns: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    sizes = {turn["parameters"] for both in turns.values() for turn in both}
    assert len(sizes) == 1, f"not the same network: {sizes} parameters"
    rates = {n: [turn["steps"] / turn["seconds"] for turn in both] for n, both in turns.items()}
    ratios = [ours / theirs for ours, theirs in zip(rates["clew"], rates["torch"], strict=True)]
    return {
        "length": length,
        "torch": statistics.median(rates["torch"]),
        "clew": statistics.median(rates["clew"]),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "gflops": statistics.median(turn["gflops"] for turn in turns["clew"]),
        "compile_seconds": max(turn["compile_seconds"] for turn in turns["clew"]),
        "parameters": sizes.pop(),
    }


if __name__ == "__main__":
    main()
