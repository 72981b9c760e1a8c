"""Time of an update on one device and on several, measured by turns in one process.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python -m benchmarks.devices --devices 2

Leave the flag out on real devices. Prints medians with their intervals, and best times, in
milliseconds.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.options import described

from clew.agents.learners.a2c import A2CConfig
from clew.lab.bench.timing import by_turns, estimate, seconds_of
from clew.run import machine
from clew.run.build import make_parts
from clew.run.compiled import compile_program
from clew.run.config import TrainConfig
from clew.run.updates import init_run

SHORT = A2CConfig(num_envs=8, rollout_length=64)
WIDE = A2CConfig(num_envs=16, rollout_length=64)
LAYERS = {"hidden_size": 64, "num_layers": 2}
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


def updating(config: TrainConfig, updates: int) -> Callable[[], float]:
    """A measure of milliseconds per update; calls the compiled program once."""
    config.validate()
    parts = make_parts(config)
    program = compile_program(parts)
    held = [program(init_run(parts), jnp.int32(1))]

    def advance() -> None:
        held[0] = jax.block_until_ready(program(held[0], jnp.int32(updates)))

    return lambda: seconds_of(advance) / updates * 1e3


def main() -> None:
    """Prints one row for each case."""
    parser = described(__doc__)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--updates", type=int, default=2)
    options = parser.parse_args()
    machine.use_compilation_cache()
    print(f"{len(jax.devices())} devices of kind {jax.devices()[0].device_kind}")
    for name, changes in CASES.items():
        settings = {"env_options": {"corridor_length": 20}, "a2c": SHORT, **changes}
        config = TrainConfig(**settings)
        counts = (1, options.devices)
        measures = {n: updating(replace(config, devices=n), options.updates) for n in counts}
        found = by_turns(measures, options.turns)
        texts = [f"{estimate(found[n]):.1f} ms (best {min(found[n]):.1f})" for n in counts]
        print(f"{name}: one {texts[0]}, {options.devices} {texts[1]}", flush=True)


if __name__ == "__main__":
    main()
