"""How far every form of an export deviates from `step`: memory x way, encoder x way, one row each.

PYTHONPATH=tests python tests/deploy/equality.py > results/export/equality.jsonl
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
from exports import (
    LeakyMean,
    agent_of,
    encoding_agent,
    largest_deviation,
    memory_of,
    model_of,
    onnx_form,
    steps_of,
)
from test_export import ACTION_KINDS, OBSERVATIONS
from test_header import header_deviation

from clew.agents.network import NetworkConfig
from clew.deploy.onnx_file import is_installed
from clew.deploy.policy import PolicyStep
from clew.memory import MEMORIES
from memory_samples import INPUT_SIZE

WAYS = ("numpy", "onnx", "cpp")


def policies(time: int) -> Iterator[tuple[dict[str, str], PolicyStep, int]]:
    """Every memory, a user's own one, every encoder, every kind of action."""
    for name in MEMORIES:
        yield {"memory": name}, steps_of(agent_of(memory_of(name))), time
    own = LeakyMean(INPUT_SIZE, key=jax.random.key(0))
    yield {"memory": "a user's own"}, steps_of(agent_of(own)), time
    for kind, (space, config) in OBSERVATIONS.items():
        step = steps_of(encoding_agent(space, config), observations=space)
        yield {"memory": "gru", "encoder": kind}, step, min(time, 100)
    for kind, (space, network) in ACTION_KINDS.items():
        agent = agent_of(memory_of("gru"), space, NetworkConfig(head_size=0, **network))
        yield {"memory": "gru", "actions": kind}, steps_of(agent, actions=space), time


def deviation(step: PolicyStep, way: str, batch: int, time: int) -> float:
    """The deviation of one way."""
    if way == "cpp":
        with tempfile.TemporaryDirectory() as folder:
            return header_deviation(step, Path(folder), batch, time, optimise="-O2")
    model = model_of(step)
    form = onnx_form(step) if way == "onnx" else (model, model.step)
    return largest_deviation(step, form, batch, time)


def main() -> None:
    """Prints a row for each policy, way and batch."""
    parser = argparse.ArgumentParser(description="Compares exports with the policies.")
    parser.add_argument("--time", type=int, default=1000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 3, 64])
    parser.add_argument("--only", nargs="+", default=[], help="memories, encoder, actions")
    arguments = parser.parse_args()
    ways = [way for way in WAYS if way != "onnx" or is_installed("onnxruntime")]
    for about, step, time in policies(arguments.time):
        name = next((kind for kind in ("encoder", "actions") if kind in about), about["memory"])
        if arguments.only and name not in arguments.only:
            continue
        for way in ways:
            for batch in arguments.batches if way != "cpp" else [max(arguments.batches)]:
                found = deviation(step, way, batch, time)
                row = about | {"way": way, "batch": batch, "steps": time, "deviation": found}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
