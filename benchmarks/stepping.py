"""Steps per second with random actions: of a task in JAX beside a Gymnasium environment."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
from benchmarks.options import described
from gymnasium import spaces

from clew.cli.tables import log, show
from clew.envs import AutoReset, Environment
from clew.lab.bench.machine import device
from clew.lab.bench.timing import Estimate, by_turns, estimate, ratio, seconds_of
from clew.report.document import Measured, tabulate
from clew.report.files import write_measured
from clew.run.machine import git_commit

Rate = Callable[[], float]
"""Measures steps per second."""


def random_action(space: spaces.Space, key: Any) -> Any:
    """An action drawn uniformly."""
    if isinstance(space, spaces.Box):
        return jax.random.uniform(key, space.shape, minval=space.low, maxval=space.high)
    if isinstance(space, spaces.MultiDiscrete):
        return jax.random.randint(key, (len(space.nvec),), 0, jnp.asarray(space.nvec, jnp.int32))
    assert isinstance(space, spaces.Discrete)
    return jax.random.randint(key, (), 0, int(space.n))


def compiled_rate(task: Environment, envs: int, steps: int) -> Rate:
    """Measures a task's steps per second, so many environments side by side; compiles first."""
    stream = AutoReset(task)

    def one(state: Any, key: Any) -> tuple[Any, Any]:
        action = random_action(stream.action_space, jax.random.fold_in(key, 1))
        after, seen = stream.step(state, action, key)
        return after, (seen.observation, seen.reward)

    @jax.jit
    def play(states: Any, key: Any) -> Any:
        keys = jax.random.split(key, (steps, envs))
        return jax.lax.scan(lambda states, keys: jax.vmap(one)(states, keys), states, keys)

    states, _ = jax.vmap(stream.reset)(jax.random.split(jax.random.key(0), envs))
    # Environments that opened together stay together where episodes have one length; here they
    # play on from one measurement to the next, as in a run.
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
    """Measures an environment's steps per second, with the opening of episodes."""
    env.action_space.seed(0)
    env.reset(seed=0)

    def play() -> None:
        for _ in range(steps):
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

    return lambda: steps / seconds_of(play)


def run(
    about: str | None,
    title: str,
    columns: list[str],
    cases: Callable[[list[Any]], Iterable[tuple[dict[str, Any], list[str], Mapping[str, Rate]]]],
    choices: Iterable[Any],
    show_rate: Callable[[Estimate], str] = "{:,.0f}".format,
) -> None:
    """The command line of a table of two sides' rates, by turns.

    Args:
        about: the script's docstring.
        title: of the table.
        columns: of the table.
        cases: what the row in the JSON, the line of the table and the sides of every choice are.
        choices: of the option that is named as the first column is; all by default.
        show_rate: writes a rate into the table.
    """
    names, rows, lines = list(choices), [], []
    parser = described(about)
    option, kind = f"--{columns[0]}s", type(names[0])
    parser.add_argument(option, nargs="+", type=kind, default=names, choices=names, dest="named")
    parser.add_argument("--repeats", type=int, default=6, help="turns that count")
    parser.add_argument("--output", type=Path, help="a folder for the table and JSON")
    given = parser.parse_args()
    for case, words, sides in cases(given.named):
        found = by_turns(sides, given.repeats, warm_up=True)
        rates = {side: estimate(values) for side, values in found.items()}
        times = ratio(*found.values())
        rows.append(case | {"times": times} | rates)
        lines.append([*words, *map(show_rate, rates.values()), f"{times:,.0f}"])
        log(f"{', '.join(words)}: {times:,.0f} times")
    machine = device() | {"commit": git_commit()}
    facts = {"machine": machine, "turns": given.repeats, "rows": rows}
    measured = Measured("speed", facts, [tabulate("speed", title, columns, lines)])
    if given.output:
        write_measured(measured, given.output)
    show(measured, as_json=False)
