"""Steps per second of POPGym's tasks with random actions, clew's beside popgym's, by turns.

    pip install 'popgym[navigation]==1.0.7'
    taskset -c 0 python -m benchmarks.popgym_speed --output results/popgym-exactness
    taskset -c 0 python -m benchmarks.popgym_speed --copies SOURCES --output results/popgym-copies

clew steps 64 environments at once in one compiled program; popgym steps one environment, so its
steps per second are those of 64 of them one after another. Both open new episodes as old ones end.
With `--copies`, whose `SOURCES` are those of `benchmarks.popgym_copies`, popjym's copy in JAX
replaces popgym: 64 environments in the same loop, with the automatic reset of the gymnax for which
it was written, which draws a new episode at every step and uses it where one ended.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from benchmarks.options import described
from benchmarks.popgym_copies import PLACES, as_before, copied_task, open_copies
from benchmarks.popgym_exactness import their_task
from benchmarks.stepping import Rate, compiled_rate, gymnasium_rate, run, scanned_rate
from gymnasium import spaces

from clew import make_env
from clew.envs.popgym import POPGYM
from clew.envs.popgym.difficulty import DIFFICULTIES

ENVS, STEPS, THEIR_STEPS = 64, 1000, 1000
COPIED = PLACES | {
    "multiarmed_bandit": ("popgym_multiarmedbandit", "MultiarmedBandit"),
    "noisy_position_only_cartpole": ("popgym_cartpole", "NoisyStatelessCartPole"),
    "noisy_position_only_pendulum": ("popgym_pendulum", "NoisyStatelessPendulum"),
}
"""Tasks that draw numbers within a step too."""


def copied_rate(name: str, difficulty: str) -> Rate:
    """Measures the steps per second of popjym's task."""
    _, env = copied_task("popjym", COPIED[name], difficulty)
    params = env.default_params
    takes = env.action_space(params)
    discrete = name not in ("position_only_pendulum", "noisy_position_only_pendulum")
    space = spaces.Discrete(int(takes.n)) if discrete else spaces.Box(takes.low, takes.high, (1,))

    def step(state: Any, action: Any, key: Any) -> tuple[Any, Any]:
        key, reset_key = jax.random.split(key)
        seen, after, reward, done, _ = env.step_env(key, state, action, params)
        opened = env.reset_env(reset_key, params)
        seen, after = jax.tree.map(
            lambda new, old: jnp.where(done, new, old), opened, (seen, after)
        )
        return jax.tree.map(as_before, after, state), (seen, reward)

    def reset(key: Any) -> Any:
        return env.reset_env(key, params)[1]

    return scanned_rate(reset, step, space, envs=ENVS, steps=STEPS)


def cases(given: argparse.Namespace) -> Iterator[Any]:
    """Tasks in all difficulties."""
    if given.copies:
        open_copies(given.copies)
    for name in given.tasks:
        if given.copies and name not in COPIED:
            continue
        for difficulty in DIFFICULTIES:
            sides = {"clew": compiled_rate(make_env(name, difficulty=difficulty), ENVS, STEPS)}
            if given.copies:
                sides["popjym"] = copied_rate(name, difficulty)
            else:
                sides["popgym"] = gymnasium_rate(their_task(name, difficulty), THEIR_STEPS)
            yield {"task": name, "difficulty": difficulty}, [name, difficulty], sides


if __name__ == "__main__":
    options = described(__doc__)
    options.add_argument("--copies", type=Path, metavar="SOURCES", help="beside popjym's instead")
    title = "Steps per second with random actions"
    tasks = ("--tasks", POPGYM)
    run(options, title, "steps/s", cases, tasks, lambda rate: f"{rate.middle:,.0f}")
