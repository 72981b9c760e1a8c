"""The law of replay: a stored sequence is read as it was read while acting.

A learner that replays stores the state before a sequence as `compact` leaves it. Once the
parameters differ from those that acted, the state is stale: `staleness` measures how stale.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.laws.cases import CASES, Cases
from clew.memory.laws.report import LawRecorder
from clew.memory.laws.runs import as_numpy, learn, moved

STEP = 1e-3
"""Size of an update, relative to the root mean square of each array of parameters."""
UPDATES = (1, 10, 100)
PAST = 64
"""Observations before a replayed sequence, and in it."""


def check_replay(cases: Cases, length: int, record: LawRecorder) -> None:
    """Compares a chunk from a stored state with the steps of acting, for the same parameters."""
    # Its own random numbers, so that other laws keep theirs; a second draw has others.
    random, cases.random = cases.random, cases.random.spawn(1)[0]
    xs, starts, weights = cases.draw(length)
    starts[:, 0] = False
    weights = cases.of_outputs(weights)
    memory = cases.memory
    keep = jax.vmap(lambda state: memory.expand(memory.compact(state)), axis_size=CASES)
    stored, _ = cases.refresh(memory, as_numpy(keep(cases.warm)))
    actual = cases.run([(learn, length)], stored, xs, starts, weights)
    steps = partial(cases.run, [(scan_steps, length)], cases.warm)
    expected = steps(xs, starts, weights)
    # What was left out has other gradients than what was there.
    actual = actual._replace(state=expected.state, output=cases.of_outputs(actual.output))
    names = [f"a chunk of {length} from a stored state, member {b}" for b in range(CASES)]
    near = [partial(steps, x, starts, weights) for x in cases.nudged(xs)]
    record.compare("replay", length, names, actual, expected, near)
    cases.random = random


def stored_floats(memory: AbstractMemory) -> int:
    """The size of a stored state in floats; a complex number counts as two."""
    compacted = eqx.filter_eval_shape(lambda memory: memory.compact(memory.init_state()), memory)
    return sum(leaf.size * (1 + jnp.iscomplexobj(leaf)) for leaf in jax.tree.leaves(compacted))


def staleness(memory: AbstractMemory) -> dict[int, float]:
    """How far replayed outputs are off after some updates, each a step in a random direction.

    A sequence is read from the state that the old parameters left after `PAST` observations, and
    from the one that the new parameters leave; no episode starts in between.

    Args:
        memory: with the parameters that acted.

    Returns:
        Number of updates, each of `UPDATES`, to the root mean square of the difference of the
        outputs, relative to that of the outputs.
    """
    random = np.random.default_rng(0)
    xs = jnp.asarray(random.standard_normal((2, PAST, memory.input_size)), jnp.float32)

    @eqx.filter_jit
    def read(memory: AbstractMemory, state: State, xs: jax.Array) -> tuple[State, jax.Array]:
        return memory.unroll(state, xs, jnp.zeros(PAST, bool))

    @eqx.filter_jit
    def renew(memory: AbstractMemory, compacted: State) -> State:
        return memory.refresh(memory.expand(compacted))

    stored = memory.compact(read(memory, memory.init_state(), xs[0])[0])
    found, made, new = {}, 0, memory
    for number in UPDATES:
        for _ in range(made, number):
            new = moved(new, STEP, random)
        made = number
        state, _ = read(new, new.init_state(), xs[0])
        stale, fresh = (read(new, s, xs[1])[1] for s in (renew(new, stored), state))
        found[number] = float(jnp.sqrt(jnp.mean((stale - fresh) ** 2) / jnp.mean(fresh**2)))
    return found
