"""Linear probes of a memory's state and output, step by step."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from clew.agents.network import Agent
from clew.errors import UserError, require_at_least
from clew.memory.base import State, count_floats
from clew.stats import Interval, wilson_interval

FOLDS = 5
FEWEST = 20
"""Least number of episodes for a probe."""
LARGEST = 2048
"""Largest size of a state that is not sketched."""
PENALTIES = tuple(10.0**power for power in range(-4, 4))
"""Ridge penalties, as multiples of the mean squared norm of an example."""
TOGETHER = 32
"""Number of episodes that are read side by side."""


class Readings(NamedTuple):
    """States and outputs of a memory at every step of some episodes."""

    states: Float[np.ndarray, "episodes time features"]
    """States after the observation of the step; sketched if larger than `LARGEST`."""
    outputs: Float[np.ndarray, "episodes time out"]
    state_size: int
    """Size of the state before any sketch; 0 for a memory without a state."""


class Probe(NamedTuple):
    """The accuracy of probes of one label from one source, at several steps."""

    label: str
    source: str
    """ "state" or "output" """
    steps: list[int]
    accuracy: list[Interval]
    """Held-out accuracy, with Wilson's 95% interval over episodes."""
    majority: list[float]
    """Accuracy of a guess without any input: the fraction of the most frequent class."""
    episodes: list[int]
    """Number of episodes that had not ended yet."""


def read_episodes(agent: Agent, observations: Float[np.ndarray, "episodes time n"]) -> Readings:
    """Steps a memory through episodes, each from its beginning.

    A state of D > `LARGEST` numbers is sketched: number i is added to place i mod `LARGEST`, with a
    random sign that is the same for all states. This preserves inner products in expectation, as in
    Charikar et al. (2002), and a linear probe needs nothing else.

    Observations are padded at an episode's end.
    """
    parts = []
    for first in range(0, len(observations), TOGETHER):
        batch = observations[first : first + TOGETHER]
        full = np.pad(batch, [(0, TOGETHER - len(batch)), (0, 0), (0, 0)])
        # Always a full batch, so that there is only one program.
        states, outputs = jax.device_get(_read(agent, jnp.asarray(full)))
        parts.append((states[: len(batch)], outputs[: len(batch)]))
    size = count_floats(jax.eval_shape(agent.init_state))
    states, outputs = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Readings(states, outputs, size)


@eqx.filter_jit
def _read(agent: Agent, observations: Float[Array, "episodes time n"]) -> tuple[Array, Array]:
    def one(xs: Float[Array, "time n"]) -> tuple[Array, Array]:
        def step(state: State, inputs: tuple[Array, Array]) -> tuple[State, tuple[Array, Array]]:
            state, y = agent.memory.step(state, agent.encoder(inputs[0]), inputs[1])
            return state, (_features(state), y)

        starts = jnp.arange(len(xs)) == 0
        return jax.lax.scan(step, agent.init_state(), (xs, starts))[1]

    return jax.vmap(one)(observations)


def _numbers(state: State) -> list[Any]:
    """The floating-point arrays; complex ones as real and imaginary parts."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    parts = [(leaf.real, leaf.imag) if jnp.iscomplexobj(leaf) else (leaf,) for leaf in leaves]
    return [part for pair in parts for part in pair]


def _features(state: State) -> Float[Array, " features"]:
    numbers = [leaf.reshape(-1).astype(jnp.float32) for leaf in _numbers(state)]
    flat = jnp.concatenate(numbers) if numbers else jnp.zeros(0, jnp.float32)
    if len(flat) <= LARGEST:
        return flat
    rows = -(-len(flat) // LARGEST)
    signs = np.random.default_rng(0).choice(np.array([-1, 1], np.float32), (rows, LARGEST))
    padded = jnp.pad(flat, (0, rows * LARGEST - len(flat))).reshape(rows, LARGEST)
    return jnp.sum(padded * jnp.asarray(signs), axis=0)


def probe_steps(
    features: Float[np.ndarray, "episodes time features"],
    classes: Int[np.ndarray, " episodes"],
    lengths: Int[np.ndarray, " episodes"],
    *,
    label: str,
    source: str,
    points: int = 60,
    seed: int = 0,
) -> Probe:
    """Probes every step, or `points` evenly spaced steps, in the episodes that reach it.

    Steps are left out if fewer than `FEWEST` episodes reach them, or if there is only one class.

    Args:
        features: of every episode and step.
        classes: the targets, an integer for each episode.
        lengths: number of steps of each episode.
        label: name of the classes.
        source: where the features come from.
        points: most steps, at least 2.
        seed: of the folds.
    """
    require_at_least("points", points, 2)
    last = int(lengths.max()) - 1
    steps = np.unique(np.linspace(0, last, min(points, last + 1)).round().astype(int))
    found = Probe(label, source, [], [], [], [])
    for step in steps:
        alive = lengths > step
        counts = np.unique(classes[alive], return_counts=True)[1]
        if alive.sum() < FEWEST or len(counts) < 2:
            continue
        right = held_out(features[alive, step], classes[alive], seed=seed)
        found.steps.append(int(step))
        found.accuracy.append(wilson_interval(int(right.sum()), len(right)))
        found.majority.append(float(counts.max() / counts.sum()))
        found.episodes.append(len(right))
    return found


def held_out(
    features: Float[np.ndarray, "examples features"],
    classes: Int[np.ndarray, " examples"],
    *,
    seed: int = 0,
) -> Bool[np.ndarray, " examples"]:
    """Which examples a linear classifier that was fitted without them gets right.

    Ridge regression of one indicator for each class on standardised features; the largest wins.
    Every example is held out once. Mean, scale and penalty come only from the other folds: the
    penalty is the one of `PENALTIES` with the least leave-one-out error there, in closed form
    (Allen, 1974: the residual divided by 1 - h, with h the example's leverage).

    Args:
        features: may have width 0; then the most frequent class is predicted.
        classes: integers.
        seed: of the order in which examples of each class are dealt to the folds.

    Raises:
        UserError: if there are fewer examples than folds, or features that are not finite.
    """
    if len(classes) < FOLDS:
        raise UserError(f"{FOLDS} folds need at least as many examples, got {len(classes)}")
    if not np.isfinite(features).all():
        raise UserError("the features of a probe must be finite numbers")
    order = np.random.default_rng(seed).permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    fold = np.empty(len(classes), int)
    fold[order] = np.arange(len(classes)) % FOLDS
    names, number = np.unique(classes, return_inverse=True)
    right = np.zeros(len(classes), bool)
    for this in range(FOLDS):
        train, test = fold != this, fold == this
        targets = np.eye(len(names))[number[train]]
        scores = _ridge(features[train], targets, features[test])
        right[test] = scores.argmax(axis=1) == number[test]
    return right


def _ridge(train: np.ndarray, targets: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Scores of the test examples, from the dual problem: as many unknowns as examples."""
    centre, spread = train.mean(axis=0), train.std(axis=0)
    useful = spread > 1e-6 * max(1e-6, spread.max(initial=0.0))
    mean = targets.mean(axis=0)
    if not useful.any():
        return np.broadcast_to(mean, (len(test), len(mean)))
    scale = spread[useful] * math.sqrt(useful.sum())
    seen, asked = (((x - centre)[:, useful] / scale).astype(np.float64) for x in (train, test))
    eigenvalues, vectors = np.linalg.eigh(seen @ seen.T)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    rotated = vectors.T @ (targets - mean)

    def left_out(penalty: float) -> float:
        shrunk = penalty / (eigenvalues + penalty)
        residual = vectors @ (shrunk[:, None] * rotated)
        # 1 - h, including the 1 / n of every example from the mean.
        own = (vectors**2) @ shrunk - 1.0 / len(seen)
        return float(np.mean((residual / np.maximum(own, 1e-12)[:, None]) ** 2))

    penalty = min(PENALTIES, key=left_out)
    weights = vectors @ (rotated / (eigenvalues + penalty)[:, None])
    return asked @ (seen.T @ weights) + mean
