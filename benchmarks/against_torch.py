"""How much faster a study trains here than the published loop in PyTorch, on one core.

    make bench-torch

runs both by turns on the same core, each in a process of its own with one thread, with GTrXL, the
LSTM and the Integrated Transformer of Makkink (2021) as published at memory lengths 20 and 70, and
prints medians over the turns. clew runs the programs of `clew study makkink`, three seeds in one;
compile time is not counted, but reported. The rate of matrix products is measured on the same
machine at that moment.
"""

import argparse
import itertools
import json
import os
import time
from functools import partial
from typing import Any

from benchmarks.options import described
from benchmarks.processes import answer

from clew.cli.tables import log
from clew.lab.bench.timing import by_turns, estimate, seconds_of

MEMORIES, LENGTHS, SEEDS = ("gtrxl", "lstm", "integrated"), (20, 70), (4, 5, 10)


def measure_clew(memory: str, length: int, seconds: float, core: int) -> dict[str, Any]:
    """The rate of one of the study's programs, and the rate of matrix products."""
    os.sched_setaffinity(0, {core})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax
    import jax.numpy as jnp

    from clew.lab.bench.machine import matrix_product_rate
    from clew.lab.costs import parameters
    from clew.lab.studies.makkink import grid as makkink
    from clew.run import machine
    from clew.run.build import abstract_agent, make_parts
    from clew.run.compiled import compile_program
    from clew.run.updates import init_run

    machine.use_compilation_cache()
    study = makkink.study("length").only([memory], [f"length-{length}"])
    config = study.config(memory, f"length-{length}")
    parts = make_parts(config)
    programs: list[Any] = []
    compiled = seconds_of(lambda: programs.append(compile_program(parts)))
    program = programs[0]
    state = jax.block_until_ready(program(init_run(parts, SEEDS), jnp.int32(10)))
    updates, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        state = jax.block_until_ready(program(state, jnp.int32(50)))
        updates += 50
    return {
        "parameters": parameters(abstract_agent(config, parts.task)),
        "steps": updates * config.steps_per_update * len(SEEDS),
        "seconds": passed,
        "compile_seconds": compiled,
        "gflops": matrix_product_rate() / 1e9,
    }


def main() -> None:
    """Measures both by turns, and prints a table or JSON."""
    parser = described(__doc__)
    parser.add_argument("--torch-python", default=".venv-torch/bin/python")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memories", nargs="+", choices=MEMORIES, default=list(MEMORIES))
    parser.add_argument("--clew", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.clew:
        memory, length = given.clew
        print(json.dumps(measure_clew(memory, int(length), given.seconds, given.core)))
        return
    found: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for memory, length in itertools.product(given.memories, LENGTHS):
        program, seconds, core = [memory, str(length)], str(given.seconds), str(given.core)
        torch = ["benchmarks/torch_loop.py", *program, seconds, core]
        clew = ["-m", "benchmarks.against_torch", "--clew", *program]
        clew += ["--seconds", seconds, "--core", core]
        measures = {
            "torch": partial(answer, torch, python=given.torch_python),
            "clew": partial(answer, clew),
        }
        log(f"{memory}, length {length}")
        found[memory, length] = by_turns(measures, given.turns, log=log)
    rows = [_row(*program, turns) for program, turns in found.items()]
    if given.json:
        turns = {f"{memory}-{length}": both for (memory, length), both in found.items()}
        print(json.dumps({"rows": rows, "turns": turns}, indent=1))
        return
    for row in rows:
        print(
            f"{row['memory']}, length {row['length']}: PyTorch {row['torch']:,.0f} steps/s, clew "
            f"{row['clew']:,.0f}, {row['ratio']:.1f} times (turns {row['least']:.1f} to "
            f"{row['most']:.1f}), {row['gflops']:.0f} GFLOP/s of products"
        )


def _row(memory: str, length: int, turns: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    sizes = {turn["parameters"] for both in turns.values() for turn in both}
    assert len(sizes) == 1, f"not the same network: {sizes} parameters"
    rates = {n: [turn["steps"] / turn["seconds"] for turn in both] for n, both in turns.items()}
    ratios = [a / b for a, b in zip(rates["clew"], rates["torch"], strict=True)]
    return {
        "memory": memory,
        "length": length,
        "torch": estimate(rates["torch"]).middle,
        "clew": estimate(rates["clew"]).middle,
        "ratio": estimate(ratios).middle,
        "least": min(ratios),
        "most": max(ratios),
        "gflops": estimate([turn["gflops"] for turn in turns["clew"]]).middle,
        "compile_seconds": max(turn["compile_seconds"] for turn in turns["clew"]),
        "parameters": sizes.pop(),
    }


if __name__ == "__main__":
    main()
