"""Are other libraries' copies of POPGym in JAX popgym 1.0.7? They play popgym's own episodes.

    python -m benchmarks.popgym_copies SOURCES --output results/popgym-copies

`SOURCES` holds checkouts of popjaxrl (its folder envs, called popjaxrl) and of popjym, neither of
which can still be installed; they import gymnax 1.0.1, chex and flax. As in
`benchmarks.popgym_exactness`, popgym draws an episode. A copy's state is set to popgym's draw and
the copy gets popgym's actions; observations, rewards and ends are compared at every step, the
observations in the copy's own encoding of popgym's. A copy's bandit and its noise draw numbers
within a step, so they are left out; it has no labyrinth.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.measured import publish
from benchmarks.options import described
from benchmarks.popgym_exactness import Episode, is_mechanical, play, their_task

from clew.cli.tables import log
from clew.envs.popgym.cards import kind_of
from clew.envs.popgym.difficulty import DIFFICULTIES
from clew.report.document import Measured, Table, tabulate
from clew.run.machine import git_commit

COPIES = ("popjaxrl", "popjym")
ALLOWED = 1e-5
"""Allowed difference of observations and rewards: copies compute in single precision."""
PLACES = {  # file of a copy, its class
    "autoencode": ("popgym_autoencode", "Autoencode"),
    "repeat_first": ("popgym_repeat_first", "RepeatFirst"),
    "repeat_previous": ("popgym_repeat_previous", "RepeatPrevious"),
    "count_recall": ("popgym_count_recall", "CountRecall"),
    "higher_lower": ("popgym_higherlower", "HigherLower"),
    "concentration": ("popgym_concentration", "Concentration"),
    "battleship": ("popgym_battleship", "Battleship"),
    "mine_sweeper": ("popgym_minesweeper", "MineSweeper"),
    "position_only_cartpole": ("popgym_cartpole", "StatelessCartPole"),
    "position_only_pendulum": ("popgym_pendulum", "StatelessPendulum"),
}


def neighbours(mines: np.ndarray) -> np.ndarray:
    """The number of mines on a square and beside it."""
    around = np.pad(mines.astype(int), 1)
    rows, columns = mines.shape
    parts = [around[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    return np.sum(parts, axis=0)


class Play(NamedTuple):
    """How popgym's episodes are played in a copy."""

    state: Callable[[Any, Any], dict[str, Any]]
    """maps popgym's draw and the copy's task to the fields of the copy's first state"""
    seen: Callable[[Any, Any], Any]
    """maps popgym's observation and the copy's task to the copy's encoding of it"""
    action: Callable[[Any, Any], Any] = lambda action, env: action
    """the same for an action"""


def deck(by: str) -> Callable[[Any, Any], dict[str, Any]]:
    """Cards in dealing order, as suits, ranks or colours."""
    return lambda drawn, env: {"timestep": 0, "cards": kind_of(drawn["cards"], by)}


def one_of(size: int) -> Callable[[Any, Any], Any]:
    """A number as a one-hot vector."""
    return lambda seen, env: jax.nn.one_hot(seen, size)


def count_recall(drawn: Any, env: Any) -> dict[str, Any]:
    """Both decks, and nothing counted."""
    by = {2: "colours", 4: "suits", 13: "ranks"}[env.num_types]
    cards, queries = (kind_of(drawn[name], by) for name in ("cards", "queries"))
    blank = np.zeros(env.num_types, np.float32)
    return {"timestep": 0, "value_cards": cards, "query_cards": queries, "running_count": blank}


def concentration(drawn: Any, env: Any) -> dict[str, Any]:
    """All cards face down."""
    cards = kind_of(drawn["cards"], {2: "colours", 13: "ranks"}[env.num_types])
    down = np.zeros_like(cards)
    return {"timestep": 0, "cards": cards, "face_up": down, "in_play": down}


def battleship(drawn: Any, env: Any) -> dict[str, Any]:
    """popgym's ships, without a shot."""
    ships = drawn["ships"].astype(np.float32)
    return {"timestep": 0, "board": ships, "guesses": np.zeros_like(ships), "hits": 0}


def mine_sweeper(drawn: Any, env: Any) -> dict[str, Any]:
    """popgym's mines, with nothing opened."""
    mines = drawn["mines"]
    near = neighbours(mines).astype(np.int8).ravel()
    return {"timestep": 0, "mine_grid": mines.astype(np.int8).ravel(), "neighbor_grid": near}


def flat(action: Any, env: Any) -> Any:
    """A row and a column as one number."""
    width = env.board_size if hasattr(env, "board_size") else env.dims[1]
    return action[0] * width + action[1]


PLAYS: dict[str, Play] = {
    "autoencode": Play(deck("suits"), lambda seen, env: seen[0] * jax.nn.one_hot(seen[1], 4)),
    "repeat_first": Play(deck("suits"), one_of(4)),
    "repeat_previous": Play(deck("suits"), one_of(4)),
    "higher_lower": Play(deck("ranks"), one_of(13)),
    "count_recall": Play(
        count_recall, lambda seen, env: jax.nn.one_hot(seen, env.num_types).ravel()
    ),
    "concentration": Play(
        concentration, lambda seen, env: jax.nn.one_hot(seen, env.num_types + 1).ravel()
    ),
    "battleship": Play(battleship, lambda seen, env: jnp.array([seen], float), flat),
    "mine_sweeper": Play(mine_sweeper, lambda seen, env: jax.nn.one_hot(seen, env.num_mines), flat),
    "position_only_cartpole": Play(lambda drawn, env: {}, lambda seen, env: seen),
    "position_only_pendulum": Play(lambda drawn, env: {}, lambda seen, env: seen),
}


def state_before(name: str, made: Any, row: Any, time: Any) -> Any:
    """A copy's state of a pole, from popgym's."""
    if name.endswith("cartpole"):
        return made.EnvState(*row["numbers"], time=time)
    return made.EnvState(row["numbers"][0], row["numbers"][1], 0.0, time)


def as_before(new: Any, old: Any) -> Any:
    """A number of a state in its original type: a copy's types change from step to step."""
    return jnp.asarray(new, jnp.asarray(old).dtype)


class Row(NamedTuple):
    """A copy's task in one difficulty."""

    copy: str
    task: str
    difficulty: str
    steps: int
    observations: int
    rewards: int
    ends: int
    """steps that differ"""
    first: str
    """the first of them"""


def far(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where numbers differ by more than is allowed; NaN always differs."""
    return ~(np.abs(a - b) <= ALLOWED)


def compare(copy: str, made: Any, env: Any, task: tuple[str, str], episodes: list[Episode]) -> Row:
    """Plays popgym's episodes in a copy."""
    name, difficulty = task
    how, params = PLAYS[name], env.default_params
    mechanical = is_mechanical(name)

    def step(state: Any, given: Any) -> Any:
        row, time = given
        if mechanical:
            state = state_before(name, made, row, time)
        action = how.action(row["action"], env)
        seen, after, reward, done, _ = env.step_env(jax.random.key(0), state, action, params)
        kept = None if mechanical else jax.tree.map(as_before, after, state)
        return kept, (seen, reward, done, how.seen(row["observation"], env))

    @jax.jit
    def one(start: Any, rows: Any) -> Any:
        state = None if mechanical else made.EnvState(**start)
        return jax.lax.scan(step, state, (rows, jnp.arange(len(rows["reward"]))))[1]

    totals, found = np.zeros(3, int), ""
    for number, episode in enumerate(episodes):
        start = jax.tree.map(jnp.asarray, how.state(episode.opening, env))
        seen, reward, done, expected = jax.device_get(one(start, episode.rows))
        ends = episode.rows["terminated"] | episode.rows["truncated"]
        off = far(seen, expected).reshape(len(seen), -1).any(axis=1)
        # No agent sees the observation after the very last step.
        wrong = (off & ~ends, far(reward, episode.rows["reward"]), done != ends)
        totals += [part.sum() for part in wrong]
        if not found and any(part.any() for part in wrong):
            at = int(np.argmax(np.any(wrong, axis=0)))
            kinds = ("observation", "reward", "end")
            what = ", ".join(kind for kind, part in zip(kinds, wrong, strict=True) if part[at])
            paid, theirs = float(reward[at]), float(episode.rows["reward"][at])
            found = f"episode {number}, step {at}: {what}; reward {paid:.4f}, popgym {theirs:.4f}"
    steps = sum(len(episode.rows["reward"]) for episode in episodes)
    observations, rewards, ends = (int(n) for n in totals)
    return Row(copy, name, difficulty, steps, observations, rewards, ends, found)


def open_copies(sources: Path) -> None:
    """Makes the checkouts of copies importable, with the installed gymnax."""
    sys.path[:0] = [str(sources), str(Path(__file__).with_name("peers"))]
    from import_parts import import_part

    base = import_part("gymnax.environments.environment", "gymnax", "gymnax.environments")
    # The copies use gymnax 0.0.6, which called this is_terminal.
    base.Environment.is_terminated = lambda env, state, params: env.is_terminal(state, params)
    importlib.import_module("gymnax.environments.spaces")


def copied_task(copy: str, place: tuple[str, str], difficulty: str) -> tuple[Any, Any]:
    """A module of a copy, and its task with this file and class."""
    made = importlib.import_module(f"{copy}.environments.{place[0]}")
    return made, getattr(made, place[1] + difficulty.title())()


def measure(sources: Path, names: list[str], steps: int, seed: int) -> list[Row]:
    """All tasks of all copies in all difficulties."""
    open_copies(sources)
    rows = []
    for name in names:
        for difficulty in DIFFICULTIES:
            episodes = play(name, their_task(name, difficulty), steps, seed)
            for copy in COPIES:
                made, env = copied_task(copy, PLACES[name], difficulty)
                rows.append(compare(copy, made, env, (name, difficulty), episodes))
                log(f"{copy}, {name}, {difficulty}: {rows[-1][4:]} of {rows[-1].steps:,}")
    return rows


def table(rows: list[Row]) -> Table:
    """One row for each task, difficulty and copy."""
    lines = [
        [row.copy, row.task, row.difficulty, f"{row.steps:,}"]
        + [f"{count:,}" for count in row[4:7]]
        + [row.first]
        for row in rows
    ]
    columns = ("copy", "task", "difficulty", "steps", "observations", "rewards", "ends", "first")
    return tabulate("copies", "Steps that differ from popgym 1.0.7", columns, lines)


def main() -> None:
    """Plays, prints and writes."""
    parser = described(__doc__)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list(PLACES), choices=PLACES)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    rows = measure(given.sources, given.tasks, given.steps, given.seed)
    about = {"commit": git_commit(), "steps": given.steps, "seed": given.seed}
    publish(Measured("copies", {"about": about, "rows": rows}, [table(rows)]), given.output)


if __name__ == "__main__":
    main()
