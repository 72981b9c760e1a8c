"""PQN and R2D2 beside memorax's, and beside PPO: environment steps and gradient steps per second.

    make .venv-peers/.installed
    python -m benchmarks.learner_peers results/learner-peers

The same JAX task for all, clew's memory chain of 20 steps, a GRU of 64 units behind a dense layer,
and the settings of clew's learners at their defaults as far as memorax has them. Each measurement
runs in its own process, by turns; leave the machine alone meanwhile. Rates are those of a compiled
call of four rollouts with the learning from them, after three calls that are not counted.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.options import described
from benchmarks.processes import ROOT, answer

from clew.cli.pages import SETTING
from clew.lab.bench.timing import by_turns, estimate

PEERS = ROOT / ".venv-peers/bin/python"
CASES = ("clew ppo", "clew pqn", "memorax pqn", "clew r2d2", "memorax r2d2")
WIDTH, LENGTH, ROLLOUTS, UNTIMED = 64, 20, 4, 3


def settings(learner: str) -> Any:
    """A learner's settings; PPO's minibatches are PQN's; R2D2: two gradient steps per rollout."""
    from clew import PPOConfig
    from clew.agents.learners.pqn import PQNConfig
    from clew.agents.learners.r2d2 import R2D2Config

    if learner == "ppo":
        return PPOConfig(32, 128, 128, minibatches=16, epochs=4, learning_rate=1e-3)
    return PQNConfig() if learner == "pqn" else R2D2Config(gradient_steps=2)


def gradient_steps(config: Any) -> int:
    """After a rollout."""
    found = getattr(config, "gradient_steps", None)
    return config.minibatches * config.epochs if found is None else found


def clew_learner(learner: str, **changes: Any) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Starts a training and returns a call that continues it, and its sizes."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from clew import NetworkConfig, TrainConfig
    from clew.run.build import make_parts
    from clew.run.compiled import compile_program
    from clew.run.machine import planned_bytes
    from clew.run.updates import init_run

    chosen: Any = {learner: replace(settings(learner), **changes)}
    config = TrainConfig(
        env="memory_chain",
        env_options={"memory_length": LENGTH},
        memory="gru",
        memory_options={"hidden_size": WIDTH},
        network=NetworkConfig(encoder="mlp", encoder_layers=1, head_size=0),
        algorithm=learner,
        steps=10_000_000,
        **chosen,
    )
    parts = make_parts(config)
    program = compile_program(parts)

    def begin() -> Callable[[], Any]:
        held = [init_run(parts)]

        def call() -> Any:
            held[0] = program(held[0], jnp.int32(ROLLOUTS))
            return held[0]

        return call

    state = init_run(parts)
    arrays = eqx.filter(state.seed.agent, eqx.is_inexact_array)
    return begin, {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(arrays)),
        "replay_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(state.replay)),
        "foretold_bytes": planned_bytes(program.compiled),
    }


def memorax_learner(learner: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The same for memorax, in its own environment."""
    import memorax_learner as peer
    from clew.envs import AutoReset, MemoryChain

    stream = AutoReset(MemoryChain(memory_length=LENGTH))
    config = argparse.Namespace(**json.loads(os.environ["SETTINGS"]))
    algorithm = peer.build(learner, stream, 2, WIDTH, config)
    steps = ROLLOUTS * config.num_envs * config.rollout_length
    return partial(peer.begin, algorithm, steps), {"parameters": peer.size_of(algorithm)}


def child(case: str, calls: int) -> dict[str, Any]:
    """The measurement of one process: seconds of calls."""
    sys.path.insert(0, str(ROOT / "benchmarks/peers"))
    import jax

    library, learner = case.split()
    begin, facts = (clew_learner if library == "clew" else memorax_learner)(learner)

    call, seconds = begin(), []
    for _ in range(calls + UNTIMED):
        began = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - began)
    # R2D2 learns nothing before its replay has 10,000 steps, which are two such calls.
    return facts | {"seconds": seconds[UNTIMED:]}


def measure(case: str, calls: int) -> dict[str, Any]:
    """One process; environment steps and gradient steps per second of its calls' median."""
    config = settings(case.split()[1])
    found = process(case, calls)
    middle = estimate(found.pop("seconds")).middle
    steps = ROLLOUTS * config.num_envs * config.rollout_length
    updates = ROLLOUTS * gradient_steps(config)
    return found | {"steps_per_second": steps / middle, "updates_per_second": updates / middle}


def process(case: str, calls: int) -> dict[str, Any]:
    """The result of a separate process, in clew's or in the peers' environment."""
    library, learner = case.split()
    variables = {
        "GLIBC_TUNABLES": SETTING if library == "clew" else "",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": f"{ROOT}/src:{ROOT}",
        "SETTINGS": json.dumps(vars(settings(learner))),
    }
    python = sys.executable if library == "clew" else str(PEERS)
    words = ["-m", "benchmarks.learner_peers", "--child", case, str(calls)]
    return answer(words, variables, python=python)


def main() -> None:
    """Prints medians of all turns and writes every turn."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2], int(sys.argv[3]))))
        return
    parser = described(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    given = parser.parse_args()
    measures = {case: partial(measure, case, given.calls) for case in given.cases}
    turns = by_turns(measures, given.turns, rotate=True)
    for case, found in turns.items():
        rate = estimate([turn["steps_per_second"] for turn in found])
        print(f"{case:14} {rate:,.0f} steps/s")
    from clew.files import write_json
    from clew.lab.bench.machine import device, matrix_product_rate

    given.folder.mkdir(parents=True, exist_ok=True)
    about = {"device": device(), "product_rate": matrix_product_rate(), "calls": given.calls}
    write_json(given.folder / "turns.json", about | {"turns": turns})


if __name__ == "__main__":
    main()
