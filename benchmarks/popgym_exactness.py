"""Are clew's tasks of POPGym those of popgym 1.0.7? Both play the same episodes side by side.

    pip install 'popgym[navigation]==1.0.7'
    python -m benchmarks.popgym_exactness --output results/popgym-exactness

popgym draws an episode; clew's task is opened with the same cards, boards, mazes or numbers, and
gets the same random actions and the random numbers that popgym drew on the way. Observations,
rewards and ends are compared at every step, and spaces once. clew computes CartPole and Pendulum in
single precision and popgym in double: each step is compared from popgym's own state.
"""

import copy
import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import gymnasium
import jax
import numpy as np
from benchmarks.measured import publish
from benchmarks.options import described
from gymnasium import spaces

from clew import make_env
from clew.cli.tables import log
from clew.envs.popgym import POPGYM
from clew.envs.popgym.cartpole import CartPoleState
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.envs.popgym.pendulum import PendulumState
from clew.report.document import Measured, Table, tabulate
from clew.run.machine import git_commit

THEIR_NAMES = {"velocity_only_cartpole": "VelocityOnlyCartpole"}
KEY = jax.random.key(0)
"""The numbers of steps that draw nothing."""


def their_name(name: str) -> str:
    """popgym's name for one of our tasks."""
    words = "".join(word.capitalize() for word in name.split("_"))
    return THEIR_NAMES.get(name, words.replace("Cartpole", "CartPole"))


def stack(deck: Any) -> np.ndarray:
    """popgym's cards in dealing order: it deals from the end."""
    return np.array(deck.idx[::-1], np.int32)


OPENINGS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "count_recall": lambda env: {"cards": stack(env.value_deck), "queries": stack(env.query_deck)},
    "concentration": lambda env: {"cards": np.array(env.deck.idx, np.int32)},
    "multiarmed_bandit": lambda env: {"probabilities": env.bandits},
    "battleship": lambda env: {"ships": env.board != 0},
    "mine_sweeper": lambda env: {"mines": env.hidden_grid == 1},
}
"""popgym's draws, by task, as arguments of `reset_to`; those of other tasks are cards."""


def opening_of(name: str, env: Any) -> dict[str, Any]:
    """popgym's draws for an episode, as arguments of `reset_to`."""
    if is_mechanical(name):
        return {"numbers": np.array(env.state, np.float32)}
    if name.startswith("labyrinth"):
        walls = (env.maze.grid == 1).astype(np.int8)
        return {"grid": walls, "start": np.array(env.maze.start), "end": np.array(env.maze.end)}
    return OPENINGS.get(name, lambda env: {"cards": stack(env.deck)})(env)


def is_mechanical(name: str) -> bool:
    """Whether the task is computed with real numbers."""
    return name.endswith(("cartpole", "pendulum"))


def drawn_in_step(name: str, env: Any) -> dict[str, np.ndarray]:
    """The numbers that popgym is about to draw in a step, and the state before it."""
    found, coming = {}, copy.deepcopy(env.np_random)
    if is_mechanical(name):
        found["numbers"] = np.array(env.state, np.float32)
    if name.startswith("noisy"):
        found["noise"] = (coming.normal(0, env.noise_sigma) / env.noise_sigma).astype(np.float32)
    if name == "multiarmed_bandit":
        # Rounded down to single precision, so that it is below p if popgym's number is.
        found["chance"] = np.nextafter(np.float32(coming.random()), np.float32(0))
    return found


class Episode(NamedTuple):
    """The episodes that popgym played."""

    opening: dict[str, Any]
    first: np.ndarray
    rows: dict[str, Any]
    """For every step: "action", "observation", "reward", "terminated", "truncated", and the numbers
    of `drawn_in_step`."""


def as_numbers(space: spaces.Space, value: Any) -> np.ndarray:
    """An observation of popgym's as an array; a Tuple's parts one after the other."""
    if isinstance(space, spaces.Tuple):
        return np.array([int(part) for part in value])
    return np.asarray(value)


def play(name: str, env: Any, steps: int, seed: int) -> list[Episode]:
    """Whole episodes of popgym's, of at least this many steps, with random actions."""
    episodes, count = [], 0
    env.action_space.seed(seed)
    env.reset(seed=seed)
    while count < steps:
        noise = drawn_at_reset(name, env)
        seen, _ = env.reset()
        opening = opening_of(name, env) | noise(env)
        rows, over = [], False
        while not over:
            drawn, action = drawn_in_step(name, env), env.action_space.sample()
            after, reward, terminated, truncated, _ = env.step(action)
            row = {"action": action, "observation": as_numbers(env.observation_space, after)}
            row |= {"reward": reward, "terminated": terminated, "truncated": truncated}
            rows.append(row | drawn)
            over = terminated or truncated
        columns = {key: np.stack([np.asarray(row[key]) for row in rows]) for key in rows[0]}
        episodes.append(Episode(opening, as_numbers(env.observation_space, seen), columns))
        count += len(rows)
    return episodes


def drawn_at_reset(name: str, env: Any) -> Callable[[Any], dict[str, np.ndarray]]:
    """The noise of an episode's first observation, after its reset."""
    if not name.startswith("noisy"):
        return lambda env: {}
    coming = copy.deepcopy(env.np_random)

    def found(env: Any) -> dict[str, np.ndarray]:
        coming.uniform(size=np.shape(env.state))
        return {"noise": (coming.normal(0, env.noise_sigma) / env.noise_sigma).astype(np.float32)}

    return found


def stepper(name: str, task: Any) -> Callable[..., Any]:
    """One of our steps with popgym's draws."""
    if name == "multiarmed_bandit":
        return lambda state, row: task.pull(state, row["action"], row["chance"])
    if not is_mechanical(name):
        return lambda state, row: task.step(state, row["action"], KEY)
    bare = task
    if name.startswith("noisy"):
        bare = make_env(name.removeprefix("noisy_"), max_steps=task.max_steps)

    def step(state: Any, row: Any) -> Any:
        numbers = row["numbers"]
        if name.endswith("cartpole"):
            before = CartPoleState(numbers, state.time)
        else:
            before = PendulumState(numbers[0], numbers[1], state.time)
        after, then = bare.step(before, row["action"], KEY)
        if "noise" in row:
            seen = task.with_noise(then.observation, row["noise"])
            then = then._replace(observation=seen)
        return after, then

    return step


def replay(name: str, task: Any, episodes: list[Episode]) -> tuple[Any, dict[str, Any]]:
    """Our observations, rewards and ends in the same episodes: [episode, time]."""
    longest = max(len(episode.rows["reward"]) for episode in episodes)

    def padded(column: np.ndarray) -> np.ndarray:
        return np.pad(column, [(0, longest - len(column))] + [(0, 0)] * (column.ndim - 1))

    columns = {
        key: np.stack([padded(episode.rows[key]) for episode in episodes])
        for key in episodes[0].rows
    }
    opening = jax.tree.map(lambda *xs: np.stack(xs), *[e.opening for e in episodes])
    step = stepper(name, task)

    @jax.jit
    def one(opening: Any, columns: Any) -> Any:
        state, first = task.reset_to(**opening)
        _, then = jax.lax.scan(step, state, columns)
        return first, then.observation, then.reward, then.terminated, then.truncated

    given = {key: columns[key] for key in columns if key not in RESULTS}
    first, *rest = jax.device_get(jax.vmap(one)(opening, given))
    return first, dict(zip(RESULTS, rest, strict=True)) | {"theirs": columns}


RESULTS = ("observation", "reward", "terminated", "truncated")


class Row(NamedTuple):
    """One task of one difficulty."""

    task: str
    difficulty: str
    steps: int
    episodes: int
    equal_spaces: bool
    different: int
    """steps at which an observation, a reward or an end differs"""
    largest: float
    """difference of observations and rewards"""
    random_return: float
    """mean return of random actions in an episode of popgym's"""


ROUNDING = 1e-5
"""Allowed difference between observations if one is computed in single precision; rewards of all
tasks are rounded to it, by 1e-7 at most."""


def their_task(name: str, difficulty: str) -> Any:
    """popgym's own task."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("popgym")  # registers its ids

        return gymnasium.make(f"popgym-{their_name(name)}{difficulty.title()}-v0").unwrapped


def compare(name: str, difficulty: str, episodes: list[Episode], equal_spaces: bool = True) -> Row:
    """Compares one task of one difficulty in the episodes that popgym played."""
    first, ours = replay(name, make_env(name, difficulty=difficulty), episodes)
    theirs = ours.pop("theirs")
    lengths = np.array([len(e.rows["reward"]) for e in episodes])
    valid = np.arange(theirs["reward"].shape[1]) < lengths[:, None]
    allowed = ROUNDING if is_mechanical(name) else 0.0
    differs = np.zeros(valid.shape, bool)
    seen = np.abs(ours["observation"].astype(float) - theirs["observation"])
    seen = seen.reshape(*valid.shape, -1).max(axis=-1)
    paid = np.abs(ours["reward"] - theirs["reward"])
    differs |= ~((seen <= allowed) & (paid <= 1e-7))  # NaN differs
    for end in ("terminated", "truncated"):
        differs |= ours[end] != theirs[end]
    opened = [np.abs(a.astype(float) - e.first).max() for a, e in zip(first, episodes, strict=True)]
    different = int((differs & valid).sum()) + int((~(np.array(opened) <= allowed)).sum())
    largest = max(float((seen * valid).max()), float((paid * valid).max()), max(opened))
    return Row(
        task=name,
        difficulty=difficulty,
        steps=int(lengths.sum()),
        episodes=len(episodes),
        equal_spaces=equal_spaces,
        different=different,
        largest=largest,
        random_return=float(np.mean([episode.rows["reward"].sum() for episode in episodes])),
    )


def has_equal_spaces(env: Any, task: Any) -> bool:
    """Whether spaces are equal, except that a Tuple is a MultiDiscrete here."""
    observed = env.observation_space
    if isinstance(observed, spaces.Tuple):
        observed = spaces.MultiDiscrete(
            [int(cast(spaces.Discrete, part).n) for part in observed.spaces]
        )
    return same(observed, task.observation_space) and same(env.action_space, task.action_space)


def same(a: spaces.Space, b: spaces.Space) -> bool:
    """Whether two spaces have the same values, whatever the types of their numbers."""
    if isinstance(a, spaces.MultiDiscrete) and isinstance(b, spaces.MultiDiscrete):
        return np.array_equal(a.nvec, b.nvec)
    return a == b


def measure(names: list[str], steps: int, seed: int) -> list[Row]:
    """All tasks in all difficulties."""
    rows = []
    for name in names:
        for difficulty in DIFFICULTIES:
            env = their_task(name, difficulty)
            same_spaces = has_equal_spaces(env, make_env(name, difficulty=difficulty))
            episodes = play(name, env, steps, seed)
            rows.append(compare(name, difficulty, episodes, same_spaces))
            log(f"{name}, {difficulty}: {rows[-1].different} of {rows[-1].steps:,} steps differ")
    return rows


def record(names: list[str], steps: int, seed: int, file: Path) -> None:
    """Stores episodes of popgym's for tests that run without popgym."""
    arrays = {}
    for name in names:
        for difficulty in DIFFICULTIES:
            for i, episode in enumerate(play(name, their_task(name, difficulty), steps, seed)):
                parts = {"opening": episode.opening, "": {"first": episode.first}}
                for part, values in (parts | {"rows": episode.rows}).items():
                    place = f"{name}/{difficulty}/{i}/{part}"
                    arrays |= {f"{place}/{key}": value for key, value in values.items()}
    np.savez_compressed(file, **arrays)


def recorded(file: Path) -> dict[tuple[str, str], list[Episode]]:
    """Episodes that `record` stored, by task and difficulty."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    with np.load(file) as arrays:
        for place in arrays:
            name, difficulty, number, part, key = place.split("/")
            episodes = found.setdefault((name, difficulty), {})
            episode = episodes.setdefault(number, {"opening": {}, "": {}, "rows": {}})
            episode[part][key] = arrays[place]
    return {
        variant: [Episode(e["opening"], e[""]["first"], e["rows"]) for e in episodes.values()]
        for variant, episodes in found.items()
    }


def table(rows: list[Row]) -> Table:
    """One row for each task and difficulty."""
    lines = [
        [
            row.task,
            row.difficulty,
            f"{row.steps:,}",
            f"{row.episodes:,}",
            "yes" if row.equal_spaces else "no",
            str(row.different),
            f"{row.largest:.0e}",
            f"{row.random_return:.2f}",
        ]
        for row in rows
    ]
    columns = ["task", "difficulty", "steps", "episodes", "equal spaces", "different", "largest"]
    columns.append("random return")
    return tabulate("exactness", "clew's tasks compared with popgym's", columns, lines)


def main() -> None:
    """Compares and prints the table; exits with 1 if something differs."""
    parser = described(__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(POPGYM), choices=POPGYM)
    parser.add_argument("--steps", type=int, default=100_000, help="of each difficulty, at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="a folder for the table and JSON")
    parser.add_argument("--record", type=Path, help="keep popgym's episodes in this file instead")
    given = parser.parse_args()
    if given.record:
        record(given.tasks, given.steps, given.seed, given.record)
        return
    rows = measure(given.tasks, given.steps, given.seed)
    facts = {"commit": git_commit(), "seed": given.seed, "rows": rows}
    publish(Measured("exactness", facts, [table(rows)]), given.output)
    sys.exit(any(row.different or not row.equal_spaces for row in rows))


if __name__ == "__main__":
    main()
