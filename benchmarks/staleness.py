"""How stale a stored state is: R2D2 with every memory, after Kapturowski et al. (2019), Figure 1.

    python -m benchmarks.staleness results/staleness

A small R2D2 agent learns from `UPDATES` rollouts of a task, several seeds in one program. During
training, its memory's states before the rollouts of `AGES` are kept unchanged. At the end the last
parameters read on from each of them, as from a sequence of the replay, with three first states:
stored, refreshed and zero. They are compared with the true values, those of the last parameters
reading the episode from its beginning. i steps after the first state the distance is

    d_i = mean |Q_i - Q*_i| / mean max_j max_a |Q*_j(a)|     means over environments

with |.| the Euclidean norm over actions. After a burn-in of b steps a sequence of L steps begins
with d_b and ends with d_{b + L - 1}. Environments are left out if their episode has ended by then,
or begins at the first state: there a memory forgets by its own law. Deviations from the paper: its
quotient is taken for each sequence, and its largest value is that of the sequence.

Run it again to resume: a row for each seed is appended to `rows.jsonl` when a memory is done, and a
picture is drawn from all rows.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.options import described
from gymnasium.spaces import Discrete
from jaxtyping import Array, Float, Int, Key, PyTree
from rich.progress import track

from clew import TrainConfig
from clew.agents.learners.r2d2 import R2D2Config
from clew.agents.network import Agent
from clew.agents.replay import Replay, Steps
from clew.agents.trajectory import empty_memories, read, refresh_all
from clew.envs import Environment, Transition
from clew.memory import MEMORIES, options_among
from clew.memory.base import State
from clew.report.figures import legend_handles, new_figure, save, styles_of, tidy
from clew.run.build import Parts, make_parts
from clew.run.compiled import compile_program
from clew.run.json_lines import RowFile
from clew.run.json_lines import read as read_rows
from clew.run.machine import git_commit
from clew.run.updates import RunState, init_run

SIZES = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "head_size": 16, "window": 16}
ENVIRONMENTS, UPDATES = 64, 160
AGES = (128, 64, 32, 16, 8, 4)
"""Updates between a state and the parameters that read on from it."""
FIRST = ("zero", "stored", "refreshed")
READ = 40
"""Steps that are read from a stored state."""
EPISODE = 100
"""Most steps of an episode."""
SHOWN = (0, 1, 2, 5, 10, 19, 20, 24, 29, 39)
"""Steps after the first state that are in the rows."""
PICTURED = (
    "gru",
    "lstm",
    "min_gru",
    "lru",
    "lmu",
    "mamba2",
    "retention",
    "linear_transformer",
    "gated_delta_net",
    "arelit",
    "transformer_xl",
    "gtrxl",
)
AGE_PICTURED = 32
R2D2 = R2D2Config(
    num_envs=ENVIRONMENTS,
    rollout_length=10,
    sequence_length=20,
    burn_in=20,
    period=10,
    replay_steps=ENVIRONMENTS * 10 * UPDATES,
    learning_starts=0,
    gradient_steps=8,
    batch_size=16,
    learning_rate=1e-3,
    adam_eps=1e-5,
    target_period=50,
    gamma=0.95,
)
"""Its replay keeps the whole run; the measurement reads its observations."""


class Cards(NamedTuple):
    """The state of an episode of `RepeatPrevious`."""

    shown: Int[Array, " k"]
    """The latest suits, the newest last."""
    time: Int[Array, ""]


class RepeatPrevious(Environment):
    """At every step, name the suit that was shown `K` - 1 steps before the last one, of 52.

    Every step shows a suit; a right answer earns 1, a wrong one -1, each divided by the 48 answers.
    That is `repeat_previous` (POPGym's easy one) with two differences: suits are drawn with
    replacement, and environments begin out of step, because with episodes of one length all states
    of an age would be at the same step of their episodes.
    stand at the same place of their episodes.
    """

    LENGTH, K = 52, 4
    num_actions, observation_size = 4, 1
    metric_names = ()

    @property
    def observation_space(self) -> Discrete:
        return Discrete(4)

    def reset(self, key: Key[Array, ""]) -> tuple[Cards, Array]:
        """Starts somewhere within an episode, so that environments are out of step."""
        state, suit = self.next_episode(None, key)
        return state._replace(time=jax.random.randint(key, (), 0, self.LENGTH - 1)), suit

    def next_episode(self, state: Cards | None, key: Key[Array, ""]) -> tuple[Cards, Array]:
        suit = jax.random.randint(key, (), 0, 4)
        return Cards(jnp.full(self.K, suit), jnp.zeros((), jnp.int32)), suit

    def step(self, state: Cards, action: Array, key: Key[Array, ""]) -> tuple[Cards, Transition]:
        suit, time = jax.random.randint(key, (), 0, 4), state.time + 1
        earned = jnp.where(action == state.shown[0], 1.0, -1.0) / (self.LENGTH - self.K)
        transition = Transition(
            observation=suit,
            reward=jnp.where(time >= self.K, earned, 0.0),
            terminated=time >= self.LENGTH - 1,
            truncated=jnp.zeros((), bool),
            metrics={},
        )
        return Cards(jnp.append(state.shown[1:], suit), time), transition


TASKS: dict[str, dict[str, Any]] = {
    "tmaze": {"env": "tmaze", "env_options": {"corridor_length": 20, "time_limit": EPISODE}},
    "repeat": {"env": "benchmarks.staleness:RepeatPrevious", "env_options": {}},
}

NAMES = {"tmaze": "T-Maze", "repeat": "RepeatPrevious"}


class Kept(NamedTuple):
    """An agent's arrays and its memory's states before a rollout, each for every seed."""

    agent: PyTree
    memory: State


def settings(memory: str, task: str, seeds: int) -> TrainConfig:
    """The runs of one memory."""
    return TrainConfig(
        **TASKS[task],
        algorithm="r2d2",
        r2d2=R2D2,
        memory=memory,
        memory_options=options_among(memory, SIZES),
        steps=UPDATES * ENVIRONMENTS * R2D2.rollout_length,
        seeds=seeds,
        log_every=20,
    )


def train(parts: Parts) -> tuple[RunState, dict[int, Kept]]:
    """The state after training, and the kept states, by age; in NumPy."""
    state, program, kept = init_run(parts), compile_program(parts), {}
    made = 0
    for age in (*AGES, 0):
        state = program(state, jnp.int32(UPDATES - age - made))
        made = UPDATES - age
        own = Kept(state.seed.agent, state.seed.actor.memory)
        kept[age] = jax.tree.map(np.array, own)  # copies: the program uses up the state
    return state, kept


@eqx.filter_jit
def values(agent: Agent, states: State, steps: Steps) -> Float[Array, "time batch actions"]:
    """The values of all actions in the steps after given states."""
    return read(agent, states, steps.observation, steps.start).outputs.action_values


@eqx.filter_jit
def firsts(agent: Agent, stored: State) -> State:
    """First states of reading, side by side in the order of `FIRST`."""
    empty = empty_memories(agent, ENVIRONMENTS)
    refreshed = refresh_all(agent, stored, ENVIRONMENTS)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), empty, stored, refreshed)


def distances(agent: Agent, former: Agent, stored: State, steps: Steps) -> dict[str, np.ndarray]:
    """The error at every step after the first states.

    Args:
        agent: the network that reads.
        former: the network when the states were stored.
        stored: the states.
        steps: from `EPISODE` before them to `READ` after them, [time, batch, ...].

    Returns:
        For each first state the distance, and under "NAME other" the number of greedy actions that
        differ; under "moved" the same for the former network on whole episodes; and the number of
        environments that count.
    """
    empty = empty_memories(agent, ENVIRONMENTS)
    truth, before = (np.asarray(values(one, empty, steps))[EPISODE:] for one in (agent, former))
    after = jax.tree.map(lambda x: np.concatenate([x[EPISODE:]] * len(FIRST), axis=1), steps)
    found = np.split(np.asarray(values(agent, firsts(agent, stored), after)), len(FIRST), axis=1)
    start = np.asarray(steps.start)[EPISODE:]
    valid = ~start[0] & ~np.concatenate([start[:1] & False, np.cumsum(start[1:], axis=0) > 0])
    largest = np.where(valid, np.abs(truth).max(axis=-1), 0.0).max(axis=0)
    result: dict[str, np.ndarray] = {"sequences": np.sum(valid, axis=1)}
    for name, said in (*zip(FIRST, found, strict=True), ("moved", before)):
        far = np.linalg.norm(said - truth, axis=-1)
        other = said.argmax(axis=-1) != truth.argmax(axis=-1)
        count = np.maximum(result["sequences"], 1)
        scale = np.sum(valid * largest, axis=1)
        result[name] = np.sum(valid * far, axis=1) / np.where(scale > 0, scale, np.nan)
        result[f"{name} other"] = np.sum(valid & other, axis=1) / count
    return result


def measure(memory: str, task: str, seeds: int) -> list[dict[str, Any]]:
    """Trains one memory, and measures every age of it; returns a row for each seed."""
    began = time.perf_counter()
    parts = make_parts(settings(memory, task, seeds))
    state, kept = train(parts)
    steps = jax.tree.map(np.asarray, cast(Replay, state.replay).steps)
    sums = jax.device_get(state.seed.sums)
    rows = [
        {
            "memory": memory,
            "task": task,
            "seed": seed,
            "return": _short(sums["return"][seed] / sums["episodes"][seed]),
            "steps": SHOWN,
            "ages": {age: _of_age(parts, kept, steps, age, seed) for age in AGES},
            "commit": git_commit(),
        }
        for seed in range(seeds)
    ]
    seconds = round(time.perf_counter() - began, 1)
    return [row | {"seconds": seconds} for row in rows]


def _of_age(
    parts: Parts, kept: dict[int, Kept], steps: Steps, age: int, seed: int
) -> dict[str, Any]:
    now, old = (jax.tree.map(lambda x: x[seed], kept[at]) for at in (0, age))
    agent, former = (eqx.combine(one.agent, parts.static) for one in (now, old))
    first = (UPDATES - age) * R2D2.rollout_length

    def near(x: np.ndarray) -> np.ndarray:
        return x[seed].reshape(-1, *x.shape[3:])[first - EPISODE : first + READ]

    found = distances(agent, former, old.memory, jax.tree.map(near, steps))
    return {name: [_short(x[i]) for i in SHOWN] for name, x in found.items()} | {
        "gradient_steps": age * R2D2.gradient_steps,
        "agent": _movement(former, agent),
        "memory": _movement(former.memory, agent.memory),
    }


def _movement(former: PyTree, now: PyTree) -> float | None:
    """How far the parameters moved, as a fraction of their norm."""
    a, b = (jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)) for tree in (former, now))
    size = sum(float(np.sum(np.abs(x) ** 2)) for x in a)
    change = sum(float(np.sum(np.abs(y - x) ** 2)) for x, y in zip(a, b, strict=True))
    return _short((change / size) ** 0.5) if size else None


def picture(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """The distance by burn-in and by age, one column for each task."""
    figure = new_figure(4.6 * len(TASKS), 7.0)
    styles = styles_of(PICTURED)
    frames = figure.subplots(2, len(TASKS), sharey=True)
    for column, task in zip(frames.T, TASKS, strict=True):
        for name in PICTURED:
            own = [row for row in rows if (row["memory"], row["task"]) == (name, task)]
            if not own:
                continue
            style = {"color": styles[name].colour, "linestyle": styles[name].dash}
            drawn = [_mean(own, AGE_PICTURED, n) for n in range(len(SHOWN))]
            column[0].plot(SHOWN, drawn, marker=styles[name].marker, **style)
            aged = [age * R2D2.gradient_steps for age in AGES]
            drawn = [_mean(own, age, 0) for age in AGES]
            column[1].plot(aged, drawn, marker=styles[name].marker, **style)
        passed = AGE_PICTURED * R2D2.gradient_steps
        column[0].set(
            title=f"{NAMES[task]}, state {passed} gradient steps old", xlabel="burn-in (steps)"
        )
        column[1].set(
            title=f"{NAMES[task]}, no burn-in", xlabel="age (gradient steps)", xscale="log"
        )
    for axes in frames.flat:
        axes.set(yscale="log", ylim=(1e-4, 3))
        axes.axhline(0.01, color="grey", linewidth=0.8)
    for axes in frames[:, 0]:
        axes.set_ylabel("distance / largest value")
    handles = legend_handles(PICTURED, styles)
    figure.legend(handles=handles, loc="outside lower center", ncols=6)
    save(tidy(figure), path)


def _mean(rows: Sequence[dict[str, Any]], age: int, place: int) -> float:
    """The refreshed state's values, over seeds."""
    found = [row["ages"][str(age)]["refreshed"][place] for row in rows]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else np.nan


def _short(x: Any) -> float | None:
    """Rounded to four digits; None if it is not finite."""
    return float(f"{float(x):.4g}") if np.isfinite(x) else None


def main() -> None:
    """Measures the missing memories."""
    parser = described(__doc__, draws=True)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--memories", nargs="+", default=list(MEMORIES))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="2 or more, in one program")
    given = parser.parse_args()
    if given.seeds < 2:
        parser.error(f"--seeds must be at least 2, got {given.seeds}")
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / "rows.jsonl"
    file = RowFile(path)
    done = {(row["memory"], row["task"]) for row in file.rows}
    if file.rows and {row["seed"] for row in file.rows} != set(range(given.seeds)):
        seeds = max(row["seed"] for row in file.rows) + 1
        parser.error(f"the memories in {path} have {seeds} seeds: give --seeds {seeds}")
    cells = [(memory, task) for task in given.tasks for memory in given.memories]
    cells = [] if given.redraw else cells
    for cell in track([cell for cell in cells if cell not in done], "memories"):
        file.append(measure(*cell, given.seeds))
    file.close()
    picture([line.row for line in read_rows(path)], given.folder / "staleness.png")


if __name__ == "__main__":
    main()
