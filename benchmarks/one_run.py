"""How fast one training run is alone on one core, and two of them at the same time.

    python -m benchmarks.one_run --turns 3 --output results/speed/one-run.json

Runs five agents of the T-Maze study at the thesis's sizes and the default run of `clew train`; each
measurement has its own process, by turns. Leave the machine alone meanwhile. With `--turns 0`
everything is only compiled and cached, so that turns are short. Rates are environment steps per
second of the compiled training program, one update per call as in `clew bench`; fractions are of
the rate of matrix products that the same process measured on its own cores.
"""

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.options import described
from benchmarks.processes import answer

from clew.cli.pages import SETTING
from clew.lab.bench.timing import by_turns, estimate

AGENTS = ("arelit", "lstm", "gru", "relit-4", "gtrxl-256", "default")
VARIANTS: dict[str, dict[str, Any]] = {
    "XLA's threads": {"threads": "all", "devices": 1},
    "one thread": {"threads": "one", "devices": 1},
    "divided": {"threads": "one", "devices": 2},
    "one core": {"threads": "one", "devices": 1, "cores": (0,)},
    "side by side": {"threads": "one", "devices": 1, "cores": (0, 1)},
}
"""With `cores`, one process is pinned to each of these."""


def child(agent: str, devices: int, threads: str, repeats: int) -> dict[str, Any]:
    """The measurement of one process."""
    import jax
    import jax.numpy as jnp

    from clew.lab.bench.machine import matrix_product_rate, rate_of
    from clew.lab.bench.speed import FORWARD, FORWARD_AND_BACKWARD
    from clew.lab.costs import multiply_adds
    from clew.lab.studies.tmaze.grid import PRESETS
    from clew.run import machine
    from clew.run.build import build_agent, make_parts
    from clew.run.compiled import compile_program
    from clew.run.config import TrainConfig
    from clew.run.sharding import open_devices
    from clew.run.updates import init_run

    machine.use_compilation_cache()
    open_devices()
    config = TrainConfig() if agent == "default" else PRESETS[f"pramanik/{agent}"]
    config = replace(config, devices=devices, device_threads=threads)
    parts = make_parts(config)
    config = parts.config
    program, held = compile_program(parts), [init_run(parts)]

    def advance() -> Any:
        held[0] = program(held[0], jnp.ones((), jnp.int32))
        return held[0]

    before = matrix_product_rate(repeats)
    rate = rate_of(advance, config.steps_per_update, repeats)
    product = (before + matrix_product_rate(repeats)) / 2
    network = build_agent(config, parts.task, jax.random.key(0))
    work = multiply_adds(network, parts.task.require_stream().observation_size).per_step
    useful = (FORWARD + FORWARD_AND_BACKWARD) * work * rate.middle
    return {"rate": rate.middle, "product": product, "useful": useful, "devices": config.devices}


def processes(agent: str, variant: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Runs one process, or one on each core; returns the sum of their measurements."""

    def run(core: int | None) -> dict[str, Any]:
        pin = None if core is None else partial(os.sched_setaffinity, 0, {core})
        words = ["-m", "benchmarks.one_run", "--child", agent, str(variant["devices"])]
        words += [variant["threads"], str(repeats)]
        return answer(words, {"GLIBC_TUNABLES": SETTING, "JAX_PLATFORMS": "cpu"}, begin=pin)

    cores: Sequence[int | None] = variant.get("cores", (None,))
    with ThreadPoolExecutor(len(cores)) as pool:
        found = list(pool.map(run, cores))
    total = {name: sum(one[name] for one in found) for name in ("rate", "product", "useful")}
    return total | {"devices": found[0]["devices"]}


def main() -> None:
    """Prints one row for each agent and variant, and writes all figures."""
    if sys.argv[1:2] == ["--child"]:
        agent, devices, threads, repeats = sys.argv[2:]
        print(json.dumps(child(agent, int(devices), threads, int(repeats))))
        return
    parser = described(__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--agents", nargs="+", default=AGENTS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    figures = []
    for agent in options.agents:
        repeats = options.repeats if options.turns else 1
        measures = {n: partial(processes, agent, v, repeats) for n, v in VARIANTS.items()}
        found = by_turns(measures, options.turns, warm_up=not options.turns, rotate=True)
        for variant, turns in found.items():
            if not turns:
                continue
            rate = estimate([turn["rate"] for turn in turns])
            fraction = estimate([turn["useful"] / turn["product"] for turn in turns])
            print(f"{agent:10} {variant:16} {rate:,.0f} steps/s, of matmul peak {fraction:.2f}")
            sys.stdout.flush()
            figures.append({"agent": agent, "variant": variant, "turns": turns})
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
