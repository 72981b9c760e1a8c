"""The law of replay: a stored sequence reads as it was read when it was acted on.

A learner that replays stores the state before a sequence as `compact` leaves it. With other
parameters than those that acted the state is stale, more or less: `staleness` says how far.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from clew.memory.base import AbstractMemory, State, scan_steps
from clew.memory.laws.cases import CASES, Cases
from clew.memory.laws.report import LawRecorder
from clew.memory.laws.runs import as_numpy, learn

STEP = 1e-3
"""Size of an update, relative to the root mean square of each array of parameters."""


def check_replay(cases: Cases, length: int, record: LawRecorder) -> None:
    """A chunk from a state that was stored, beside the steps of acting; same parameters."""
    random, cases.random = cases.random, np.random.default_rng(1)  # other laws' draws stay
    xs, starts, weights = cases.draw(length)
    starts[:, 0] = False
    weights = cases.of_outputs(weights)
    stored = replayed(cases.memory, cases.warm)
    actual = cases.run([(learn, length)], stored, xs, starts, weights)
    expected = cases.run([(scan_steps, length)], cases.warm, xs, starts, weights)
    # Gradients of what was left out are not those of what was there.
    actual = actual._replace(state=expected.state, output=cases.of_outputs(actual.output))
    names = [f"a chunk of {length} from a stored state, member {b}" for b in range(CASES)]
    record.compare("replay", length, names, actual, expected)
    cases.random = random


def replayed(memory: AbstractMemory, states: State) -> State:
    """States, one for each member of a batch, as a learner reads from them that had stored them."""

    def one(state: State) -> State:
        return memory.refresh(memory.expand(memory.compact(state)))

    return as_numpy(eqx.filter_jit(jax.vmap(one, axis_size=CASES))(states))


def stored_floats(memory: AbstractMemory) -> int:
    """Numbers that a stored state has."""
    compacted = eqx.filter_eval_shape(lambda memory: memory.compact(memory.init_state()), memory)
    return sum(leaf.size for leaf in jax.tree.leaves(compacted))


def staleness(
    memory: AbstractMemory,
    updates: Sequence[int] = (1, 10, 100),
    *,
    length: int = 64,
    step: float = STEP,
    seed: int = 0,
) -> dict[int, float]:
    """How far replayed sequences are off after some updates of the parameters.

    A sequence is read from the state that the old parameters left after `length` observations, and
    from the one that the new parameters leave; with neither is there a start in between.

    Args:
        memory: with the parameters that acted.
        updates: numbers of updates, each a step in a random direction.
        length: of the past, and of the sequence.
        step: the size of an update, see `STEP`.
        seed: of observations and directions.

    Returns:
        Number of updates to the root mean square of the difference of the outputs, relative to that
        of the outputs.
    """
    random = np.random.default_rng(seed)
    xs = jnp.asarray(random.standard_normal((2 * length, memory.input_size)), jnp.float32)
    starts = jnp.zeros(2 * length, bool)

    @eqx.filter_jit
    def off(new: AbstractMemory) -> jax.Array:
        before, _ = memory.unroll(memory.init_state(), xs[:length], starts[:length])
        now, _ = new.unroll(new.init_state(), xs[:length], starts[:length])
        stored = new.refresh(new.expand(memory.compact(before)))
        _, stale = new.unroll(stored, xs[length:], starts[length:])
        _, fresh = new.unroll(now, xs[length:], starts[length:])
        return jnp.sqrt(jnp.mean((stale - fresh) ** 2) / jnp.mean(fresh**2))

    found, made = {}, 0
    parameters, static = eqx.partition(memory, eqx.is_inexact_array)
    for number in sorted(updates):
        for _ in range(made, number):
            parameters = jax.tree.map(lambda p: _moved(p, step, random), parameters)
        made = number
        found[number] = float(off(eqx.combine(parameters, static)))
    return found


def _moved(parameter: jax.Array, step: float, random: np.random.Generator) -> np.ndarray:
    array = np.asarray(parameter)
    size = float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0
    direction = random.standard_normal(array.shape).astype(array.dtype)
    return (array + step * (size or 1.0) * direction).astype(array.dtype)
