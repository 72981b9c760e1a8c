"""Steps per second of POPGym's tasks with random actions, clew's beside popgym's, by turns.

    pip install 'popgym[navigation]==1.0.7'
    taskset -c 0 python -m benchmarks.popgym_speed --output results/popgym-exactness

clew steps 64 environments side by side in one compiled program, popgym one environment: its steps
per second are those of 64 of them one after the other. Episodes are opened as they end, by both.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.popgym_exactness import their_task
from gymnasium import spaces

from clew import make_env
from clew.cli.tables import log, show
from clew.envs import AutoReset
from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.lab.bench.machine import device
from clew.lab.bench.timing import by_turns, estimate, seconds_of
from clew.report.document import Measured, tabulate
from clew.report.files import write_measured
from clew.run.machine import git_commit

ENVS, STEPS = 64, 1000
THEIR_STEPS = 1000


def random_action(space: spaces.Space, key: Any) -> Any:
    """An action drawn uniformly."""
    if isinstance(space, spaces.Box):
        return jax.random.uniform(key, space.shape, minval=space.low, maxval=space.high)
    if isinstance(space, spaces.MultiDiscrete):
        return jax.random.randint(key, (len(space.nvec),), 0, jnp.asarray(space.nvec, jnp.int32))
    assert isinstance(space, spaces.Discrete)
    return jax.random.randint(key, (), 0, int(space.n))


def ours(name: str, difficulty: str) -> Callable[[], float]:
    """Measures clew's steps per second; compiles first."""
    stream = AutoReset(make_env(name, difficulty=difficulty))

    def one(state: Any, key: Any) -> tuple[Any, Any]:
        action = random_action(stream.action_space, jax.random.fold_in(key, 1))
        after, seen = stream.step(state, action, key)
        return after, (seen.observation, seen.reward)

    @jax.jit
    def play(states: Any, key: Any) -> Any:
        keys = jax.random.split(key, (STEPS, ENVS))
        return jax.lax.scan(lambda states, keys: jax.vmap(one)(states, keys), states, keys)

    states, _ = jax.vmap(stream.reset)(jax.random.split(jax.random.key(0), ENVS))
    # Environments that opened together stay together where episodes have one length; here they
    # play on from one measurement to the next, as in a run.
    kept = {"states": states, "turn": 0}

    def measure() -> float:
        kept["turn"] += 1
        seconds = seconds_of(partial(advance, kept))
        return ENVS * STEPS / seconds

    def advance(kept: dict[str, Any]) -> None:
        kept["states"], _ = jax.block_until_ready(
            play(kept["states"], jax.random.key(kept["turn"]))
        )

    return measure


def popgyms(name: str, difficulty: str) -> Callable[[], float]:
    """Measures popgym's steps per second."""
    env = their_task(name, difficulty)
    env.action_space.seed(0)
    env.reset(seed=0)

    def play() -> None:
        for _ in range(THEIR_STEPS):
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

    return lambda: THEIR_STEPS / seconds_of(play)


def measure(names: list[str], turns: int) -> Measured:
    """All tasks in all difficulties."""
    rows, lines = [], []
    for name in names:
        for difficulty in DIFFICULTIES:
            sides = {"clew": ours(name, difficulty), "popgym": popgyms(name, difficulty)}
            found = by_turns(sides, turns, warm_up=True)
            times = estimate([a / b for a, b in zip(found["clew"], found["popgym"], strict=True)])
            rates = {side: estimate(values) for side, values in found.items()}
            rows.append({"task": name, "difficulty": difficulty, "times": times} | rates)
            per_second = [f"{rates[side].middle:,.0f}" for side in sides]
            lines.append([name, difficulty, *per_second, f"{times:,.0f}"])
            log(f"{name}, {difficulty}: {times:,.0f} times")
    columns = ["task", "difficulty", "clew, steps/s", "popgym, steps/s", "times"]
    table = tabulate("speed", "Steps per second with random actions", columns, lines)
    facts = {"machine": device() | {"commit": git_commit()}, "turns": turns, "rows": rows}
    return Measured("speed", facts, [table])


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(POPGYM), choices=POPGYM)
    parser.add_argument("--repeats", type=int, default=6, help="turns that count")
    parser.add_argument("--output", type=Path, help="a folder for the table and JSON")
    given = parser.parse_args()
    found = measure(given.tasks, given.repeats)
    if given.output:
        write_measured(found, given.output)
    show(found, as_json=False)


if __name__ == "__main__":
    main()
