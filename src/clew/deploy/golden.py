"""The golden episode of an export: its inputs and the agent's outputs, step by step."""

import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clew.deploy import runner
from clew.deploy.policy import PolicyStep
from clew.interact.policy import Moment

WARM, STEPS = 7, 120
"""Number of steps before the golden ones, whose state is carried over, and of golden steps."""
LONGEST = 50
"""Actions after which an episode is stopped for the next one, so that there are starts."""
NEAR = 1e-4
"""An action is unsure if it changes when the distribution's parameters move by this much."""


def record_golden(step: PolicyStep, moments: Iterable[Moment], seed: int) -> dict[str, np.ndarray]:
    """The golden episode of a policy: its own outputs for a sequence of moments.

    Before the first start, floating-point observations are NaN once, since nothing may leak through
    a start. Discrete actions are compared if no other action is near ("sure"), outputs if no NaN
    was read since the last start ("compared").

    Args:
        step: the policy.
        moments: its inputs, at least `WARM` + `STEPS` of them.
        seed: of the small perturbations that show which actions are unsure.

    Returns:
        Arrays [time, 1, ...] "input/NAME" and "output/NAME", arrays [1, ...] "before/LEAF" and
        "after/LEAF" of the state, and bool arrays [time] "compared" and "sure". If `rounding` is
        needed, the caller adds it under that name.
    """
    act = jax.jit(_reference(step, seed))
    batched = jax.tree.map(lambda x: jnp.asarray(x)[None], step.state)
    read, state, rows, previous = runner.Reader(step.inputs()), batched, [], None
    for moment in itertools.islice(moments, WARM + STEPS):
        inputs = _inputs(read, moment, previous)
        if moment.start and len(rows) > WARM and not any(row[3] for row in rows):
            poisoned = _poisoned(inputs)
            before = state
            state, outputs, _ = act(before, poisoned)
            rows.append((poisoned, outputs, before, True, False))
        before = state
        state, outputs, sure = act(before, inputs)
        rows.append((inputs, outputs, before, False, bool(sure)))
        previous = np.asarray(outputs["action"])[0]
    return _arrays(step, rows[WARM:], state)


def rounding(step: PolicyStep, model: runner.Model) -> float:
    """The deviation of a policy in float32 from itself in float64 over its golden episode.

    Memories that divide by sums of keys (ReLiT, AReLiT) may lose more precision than
    `runner.TOLERANCE`, and so may any faithful copy. An export cannot be more precise than the
    policy.

    Returns:
        The largest deviation of an output or a leaf of the state, relative to 1 + the largest
        number; 0 for a policy that does not compute in float64.
    """
    with jax.enable_x64(True):
        act = jax.jit(jax.vmap(partial(step, _double(step.params))))

        def in_double(state: runner.State, inputs: runner.Arrays) -> tuple:
            tree = step.state_of(state)
            after, outputs = act(_double(tree), _double(inputs))
            leaves = {name: np.asarray(leaf) for name, leaf in step.leaves(after).items()}
            return outputs, runner.State(state.policy, leaves)

        try:
            found = runner.verify(model, in_double, np.inf)
        except (TypeError, ValueError):  # a user's module that insists on float32
            return 0.0
    return found if np.isfinite(found) else 0.0


def _double(tree: Any) -> Any:
    def wide(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        wider = {"f": np.float64, "c": np.complex128}
        return leaf.astype(wider.get(leaf.dtype.kind, leaf.dtype))

    return jax.tree.map(wide, tree)


def _reference(step: PolicyStep, seed: int) -> Any:
    moves = NEAR * np.random.default_rng(seed).uniform(-1, 1, (8, step.distribution.num_parameters))

    def act(state: Any, inputs: dict[str, Any]) -> tuple:
        new, outputs = jax.vmap(step, in_axes=(None, 0, 0))(step.params, state, inputs)
        numbers = jax.vmap(step.numbers, in_axes=(None, 0, 0))(step.params, state, inputs)
        near = step.action(numbers + jnp.asarray(moves, numbers.dtype))
        sure = jnp.all(near == outputs["action"])
        return new, outputs, sure

    return act


def _inputs(read: runner.Reader, moment: Moment, previous: Any) -> dict[str, np.ndarray]:
    """A batch of one, in the form of `runner.Policy`."""
    found = read(
        moment.observation,
        start=moment.start,
        previous_action=previous,
        previous_reward=moment.reward,
        previous_ended=moment.ended,
        action_mask=moment.action_mask,
    )
    return {name: value[None] for name, value in found.items()}


def _poisoned(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same inputs without a start, and with NaN in place of floating-point numbers."""
    floats = {n: np.full_like(x, np.nan) for n, x in inputs.items() if x.dtype.kind == "f"}
    return inputs | floats | {"start": np.zeros(1, bool)}


def _arrays(step: PolicyStep, rows: list[tuple], state: Any) -> dict[str, np.ndarray]:
    inputs = {n: np.stack([row[0][n] for row in rows]) for n in rows[0][0]}
    outputs = {n: np.stack([np.asarray(row[1][n]) for row in rows]) for n in rows[0][1]}
    found = {f"input/{n}": x for n, x in inputs.items()}
    found |= {f"output/{n}": x for n, x in outputs.items()}
    for side, tree in (("before", rows[0][2]), ("after", state)):
        found |= {f"{side}/{n}": np.asarray(x) for n, x in step.leaves(tree).items()}
    fine, compared = True, []
    for given, *_, poisoned, _ in rows:
        fine = (fine or bool(given["start"][0])) and not poisoned
        compared.append(fine)
    sure = np.array([row[4] for row in rows])
    return found | {"compared": np.array(compared), "sure": sure}
