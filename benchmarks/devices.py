"""Times of an update on one device and on several, by turns in one process.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python benchmarks/devices.py --devices 2

On real devices leave the flag out. Prints medians and best times in milliseconds.
"""

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from clew.agents.learners.a2c import A2CConfig
from clew.run import machine
from clew.run.compiled import compile_program, init_run, make_parts
from clew.run.config import TrainConfig

SHORT = A2CConfig(num_envs=8, rollout_length=64)
WIDE = A2CConfig(num_envs=16, rollout_length=64)
LAYERS = {"hidden_size": 64, "num_layers": 2}
WIDER = {"hidden_size": 256}
CASES: dict[str, dict[str, Any]] = {
    "gru, 8 seeds": {"memory": "gru", "memory_options": {"hidden_size": 64}, "seeds": 8},
    "arelit, 4 seeds": {"memory": "arelit", "memory_options": LAYERS, "seeds": 4},
    "lstm, 16 environments": {
        "memory": "lstm",
        "memory_options": {"hidden_size": 256},
        "a2c": WIDE,
    },
    "arelit, 16 environments": {"memory": "arelit", "memory_options": LAYERS, "a2c": WIDE},
}


def times(config: TrainConfig, devices: int, turns: int, updates: int) -> list[list[float]]:
    """Milliseconds an update with one device, and with several."""
    running = []
    for count in (1, devices):
        own = replace(config, devices=count)
        own.validate()
        parts = make_parts(own)
        program = compile_program(parts)
        running.append([program, program(init_run(parts), jnp.int32(1))])
    found: list[list[float]] = [[], []]
    for _ in range(turns):
        for own, taken in zip(running, found, strict=True):
            began = time.perf_counter()
            own[1] = jax.block_until_ready(own[0](own[1], jnp.int32(updates)))
            taken.append((time.perf_counter() - began) / updates * 1e3)
    return found


def main() -> None:
    """Prints a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--updates", type=int, default=2)
    options = parser.parse_args()
    machine.use_compilation_cache()
    print(f"{len(jax.devices())} devices of kind {jax.devices()[0].device_kind}")
    for name, changes in CASES.items():
        settings = {"env_options": {"corridor_length": 20}, "a2c": SHORT, **changes}
        found = times(TrainConfig(**settings), options.devices, options.turns, options.updates)
        told = [f"{statistics.median(x):.1f} ms (best {min(x):.1f})" for x in found]
        print(f"{name}: one {told[0]}, {options.devices} {told[1]}", flush=True)


if __name__ == "__main__":
    main()
