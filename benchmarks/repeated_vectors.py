"""How long an update of PPO takes if biases and scales are repeated by `like`, or by JAX.

    python -m benchmarks.repeated_vectors --output results/repeated-vectors

The gradient of a vector that every step shares is a sum over all steps. With JAX's broadcasting
XLA computes the terms of this sum a second time, in a loop of its own; `like` of
`clew.memory.parts.repeated` makes it a product with ones. Measured are the sixteen gradient steps
of one update, at the sizes of `clew study popgym`, on one thread, both forms by turns.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
from benchmarks import measured
from benchmarks.lengths import QUICK_NOTE

from clew.cli.tables import log as log_to_stderr
from clew.errors import require_choice
from clew.interact.rollout import gather
from clew.lab.bench.machine import call_seconds, device
from clew.lab.bench.timing import Estimate, estimate, ratio
from clew.lab.studies.popgym import grid
from clew.memory.parts import repeated
from clew.report.document import Measured, Table, tabulate
from clew.run.build import Parts, make_parts
from clew.run.updates import init_run

MEMORIES = (
    *("gru", "rg_lru", "mamba2", "gated_delta_net", "delta_product", "rwkv7", "arelit", "relit"),
    *("linear_transformer", "transformer_xl", "gtrxl"),
)
NOTE = (
    "ms: sixteen gradient steps on 256 observations each. time: of `like` relative to JAX's "
    "broadcasting, turn by turn. Medians with 95% intervals."
)


class Row(NamedTuple):
    """One memory."""

    memory: str
    like: Estimate
    """seconds"""
    broadcast: Estimate
    """seconds"""
    time: Estimate
    """of `like` relative to the other, turn by turn"""


@contextmanager
def broadcasting() -> Iterator[None]:
    """Replaces `like` by JAX's broadcasting, in every module that has it."""

    def broadcast(vector: Any, x: Any) -> Any:
        return jnp.broadcast_to(vector, x.shape)

    users = [m for m in list(sys.modules.values()) if vars(m).get("like") is repeated.like]
    with ExitStack() as patches:
        for module in users:
            patches.enter_context(mock.patch.object(module, "like", broadcast))
        yield


def update_of(parts: Parts) -> Callable[[], Any]:
    """A compiled update on one rollout of a new agent."""
    state = init_run(parts)
    options: dict[str, Any] = {"compiler_options": parts.sharding.compiler_options}
    key, arrays = jax.random.key(0), state.seed.agent

    def act(arrays: Any) -> Any:
        agent, stream = eqx.combine(arrays, parts.static), parts.task.require_stream()
        return gather(agent, state.seed.actor, key, stream=stream, learner=parts.learner).rollout

    def learn(arrays: Any, learner: Any, rollout: Any) -> Any:
        learned = parts.learner.learn(eqx.combine(arrays, parts.static), learner, rollout, key)
        return eqx.filter(learned.agent, eqx.is_array)

    rollout = jax.jit(act, **options)(arrays)
    learn = jax.jit(learn, **options).lower(arrays, state.seed.learner, rollout).compile()
    return partial(learn, arrays, state.seed.learner, rollout)


def measure(memories: Sequence[str], turns: int, log: Callable[[str], None]) -> list[Row]:
    """All memories, one after the other; its two forms by turns."""
    rows = []
    for name in memories:
        log(f"compiling {name}")
        config = replace(grid.agent(name), env="repeat_previous", device_threads="one")
        parts = make_parts(config)
        calls = {"like": update_of(parts)}
        with broadcasting():
            calls["broadcast"] = update_of(parts)
        found = call_seconds(calls, turns)
        like, other = found["like"], found["broadcast"]
        rows.append(Row(name, estimate(like), estimate(other), ratio(like, other)))
    return rows


def document(machine: Mapping[str, Any], rows: Sequence[Row]) -> Measured:
    """The measurements, as `repeated-vectors.json` and `.md`."""
    data = {"machine": machine, "rows": rows}
    return Measured("repeated-vectors", data, [table(rows)])


def table(rows: Sequence[Row]) -> Table:
    """One row a memory."""
    lines = [
        [
            row.memory,
            f"{row.broadcast.times(1e3):.1f}",
            f"{row.like.times(1e3):.1f}",
            f"{row.time:.2f}",
        ]
        for row in rows
    ]
    names = ("", "broadcast, ms", "like, ms", "time")
    return tabulate("repeated-vectors", "One update of PPO", names, lines, NOTE)


def report(given: argparse.Namespace) -> Measured:
    """Measures what the options ask for.

    Raises:
        UserError: for a name that is not among those to measure.
    """
    for name in given.memories:
        require_choice("memories", name, MEMORIES)
    turns = 2 if given.quick else given.repeats
    rows = measure(given.memories or MEMORIES, turns, log_to_stderr)
    return document(device(), rows)


def main(args: Sequence[str] | None = None) -> int:
    """Measures, prints and writes."""
    return measured.run(
        measured.parser(__doc__, repeats=15),
        args,
        report,
        lambda folder: measured.redrawn(document, folder, "repeated-vectors", Row),
        QUICK_NOTE,
    )


if __name__ == "__main__":
    sys.exit(main())
