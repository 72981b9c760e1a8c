"""Steps per second with random actions: a JAX task beside a Gymnasium environment."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
from benchmarks.measured import publish
from gymnasium import spaces

from clew.cli.tables import log
from clew.envs import AutoReset, Environment
from clew.lab.bench.machine import device
from clew.lab.bench.timing import Estimate, by_turns, estimate, ratio, seconds_of
from clew.report.document import Measured, tabulate

Rate = Callable[[], float]
"""Measures steps per second."""


def random_actions(space: spaces.Space, key: Any, count: tuple[int, ...]) -> Any:
    """This many actions, drawn uniformly."""
    if isinstance(space, spaces.Discrete):
        return jax.random.randint(key, count, 0, int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        highest = jnp.asarray(space.nvec, jnp.int32)
        return jax.random.randint(key, (*count, len(space.nvec)), 0, highest)
    assert isinstance(space, spaces.Box)
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return jax.random.uniform(key, (*count, *space.shape), minval=low, maxval=high)


def compiled_rate(task: Environment, envs: int, steps: int) -> Rate:
    """Measures a task's steps per second in this many parallel environments; compiles first."""
    stream = AutoReset(task)

    def step(state: Any, action: Any, key: Any) -> tuple[Any, Any]:
        after, seen = stream.step(state, action, key)
        return after, (seen.observation, seen.reward)

    return scanned_rate(
        lambda key: stream.reset(key)[0], step, stream.action_space, envs=envs, steps=steps
    )


def scanned_rate(
    reset: Callable[[Any], Any],
    step: Callable[[Any, Any, Any], tuple[Any, Any]],
    space: spaces.Space,
    *,
    envs: int,
    steps: int,
) -> Rate:
    """The same for any functions: a key to a state; state, action and key to the next and results.

    The actions of a measurement are drawn at once, within the measured time.
    """

    @jax.jit
    def play(states: Any, key: Any) -> Any:
        action_key, key = jax.random.split(key)
        actions = random_actions(space, action_key, (steps, envs))
        given = actions, jax.random.split(key, (steps, envs))
        return jax.lax.scan(lambda states, now: jax.vmap(step)(states, *now), states, given)

    states = jax.vmap(reset)(jax.random.split(jax.random.key(0), envs))
    states, _ = play(states, jax.random.key(0))  # from now on they have the types that play returns
    # Environments that reset together stay in step if episodes have one length; so they continue
    # from one measurement to the next, as in a run.
    kept = {"states": states, "turn": 0}

    def measure() -> float:
        kept["turn"] += 1
        return envs * steps / seconds_of(partial(advance, kept))

    def advance(kept: dict[str, Any]) -> None:
        kept["states"], _ = jax.block_until_ready(
            play(kept["states"], jax.random.key(kept["turn"]))
        )

    return measure


def gymnasium_rate(env: gymnasium.Env, steps: int) -> Rate:
    """Measures an environment's steps per second, including resets."""
    env.action_space.seed(0)
    env.reset(seed=0)

    def play() -> None:
        for _ in range(steps):
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

    return lambda: steps / seconds_of(play)


def run(
    parser: argparse.ArgumentParser,
    title: str,
    unit: str,
    cases: Callable[[Any], Iterable[tuple[dict[str, Any], list[str], Mapping[str, Rate]]]],
    named: tuple[str, Iterable[Any]],
    show_rate: Callable[[Estimate], str] = "{:,.0f}".format,
) -> None:
    """The command line of a table of two sides' rates, by turns.

    Args:
        parser: with the options that the cases read.
        title: of the table.
        unit: of a rate.
        cases: for given options, each row's entries in the JSON, its line of the table, the sides.
        named: an option, and its choices; all by default.
        show_rate: writes a rate into the table.
    """
    rows, lines, columns = [], [], []
    option, choices = named[0], list(named[1])
    kind = type(choices[0])
    parser.add_argument(option, nargs="+", type=kind, default=choices, choices=choices)
    parser.add_argument("--repeats", type=int, default=6, help="turns that count")
    parser.add_argument("--output", type=Path, help="a folder for the table and JSON")
    given = parser.parse_args()
    for case, words, sides in cases(given):
        found = by_turns(sides, given.repeats, warm_up=True)
        rates = {side: estimate(values) for side, values in found.items()}
        times = ratio(*found.values())
        columns = [*case, *(f"{side}, {unit}" for side in sides), "times"]
        rows.append(case | {"times": times} | rates)
        lines.append([*words, *map(show_rate, rates.values()), f"{times:,.0f}"])
        log(f"{', '.join(words)}: {times:,.0f} times")
    facts = {"machine": device(), "turns": given.repeats, "rows": rows}
    publish(Measured("speed", facts, [tabulate("speed", title, columns, lines)]), given.output)
