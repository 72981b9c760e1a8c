"""Does another implementation of PPO with a GRU earn more than clew's on POPGym's easy tasks?

    pip install --target TARGET --no-deps gymnax==0.0.6 chex==0.1.92 flax==0.12.8 \\
        distrax==0.1.9 tfp-nightly==0.26.0.dev20261027 absl-py dm-tree toolz msgpack decorator \\
        cloudpickle gast wrapt attrs six rich treescope orbax-checkpoint pyyaml etils
    PYTHONPATH=.:TARGET:POPJAXRL python -m benchmarks.popjaxrl results/popgym-popjaxrl

`POPJAXRL` is a checkout of luchris429/popjaxrl at 12e5d42, unchanged on disk. Its trainer,
`algorithms/ppo_gru.py`, and its wrapper that shows the previous action run on clew's own tasks with
the settings of its `run_popgym.py`, which are meant for 15,000,000 steps on a GPU. For 1,000,000 on
a processor three are scaled: a rollout has 80 steps of each environment instead of 1,024, so that
there are about as many rollouts, 194 instead of 228; it is read 6 times instead of 30, at five
times the learning rate, which is clew's; and the GRU has 64 units instead of 256, as clew's has,
unless `--width` says otherwise. Seeds take turns. If it is stopped, by Ctrl-C too, it writes the
rows of their progress, and the same command continues with the seeds that have no row.
"""

import json
import sys
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
from benchmarks.options import described

import clew
from clew.cli.tables import log
from clew.run.json_lines import RowFile
from clew.run.machine import git_commit

TASKS = (
    "count-recall",
    "mine-sweeper",
    "position-only-pendulum",
    "multiarmed-bandit",
    "noisy-position-only-cartpole",
    "repeat-previous",
    "autoencode",
)
PUBLISHED = {
    "LR": 5e-5,
    "NUM_ENVS": 64,
    "NUM_STEPS": 1024,
    "TOTAL_TIMESTEPS": 1_000_000,
    "UPDATE_EPOCHS": 30,
    "NUM_MINIBATCHES": 8,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 1.0,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.0,
    "VF_COEF": 1.0,
    "MAX_GRAD_NORM": 0.5,
    "ANNEAL_LR": False,
    "DEBUG": False,
}
"""`run_popgym.py`, except the steps, of which it makes 15 times as many."""
SCALED = {"NUM_STEPS": 80, "UPDATE_EPOCHS": 6, "LR": 2.5e-4}
"""The settings that are scaled to 1,000,000 steps on a processor."""
WINDOW = 10_240
"""Steps of a row of the curve, as in the log of clew's runs: two rollouts."""
REPLACED = (
    # flax 0.7.2 took the size of a GRU from its carry, which the trainer made itself.
    ("nn.GRUCell()", "nn.GRUCell(ins.shape[1])"),
    (
        "nn.GRUCell.initialize_carry(\n        jax.random.PRNGKey(0), (batch_size,), hidden_size)",
        "jnp.zeros((batch_size, hidden_size))",
    ),
    # The sum of returns and the number of episodes, instead of a mean over possibly no episode.
    (
        '.sum() / traj_batch.info["returned_episode"].sum()',
        '.sum(), traj_batch.info["returned_episode"].sum()',
    ),
    # Starting a training hands over the function that continues it, so that its progress is seen.
    ('jax.lax.scan(_update_step, runner_state, None, config["NUM_UPDATES"])', "begun(locals())"),
)
"""Replacements in the text of the trainer before it is run."""


def open_trainer(width: int) -> Any:
    """The trainer's module, with a GRU of this many units and stand-ins for the modules it imports.

    gymnax 0.0.6 imports gym, now gymnasium, and uses an old name of jax.tree.map; nothing is sent
    to wandb.
    """
    sys.modules["gym"], sys.modules["wandb"] = gymnasium, types.ModuleType("wandb")
    jax.tree_map = jax.tree.map
    import algorithms

    text = (Path(algorithms.__path__[0]) / "ppo_gru.py").read_text()
    for old, new in (*REPLACED, ("256", str(width))):
        assert old in text, f"ppo_gru.py is another one: it has no {old}"
        text = text.replace(old, new)
    module = types.ModuleType("ppo_gru")
    module.__dict__["begun"] = begun
    exec(compile(text, "ppo_gru.py", "exec"), module.__dict__)
    return module


def config_of(task: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The settings on a task."""
    from benchmarks.popjaxrl.adapter import AsGymnax
    from envs.wrappers import AliasPrevActionV2

    env = AsGymnax(clew.make_env(task.replace("-", "_"), difficulty="easy"))
    return PUBLISHED | changes | {"ENV": AliasPrevActionV2(env), "ENV_PARAMS": env.default_params}


def begun(names: dict[str, Any]) -> tuple[Any, Any]:
    """The state of a training at its start, in the types that its steps return, and its step."""
    step, state = names["_update_step"], names["runner_state"]
    after = jax.eval_shape(step, state, None)[0]
    return jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), state, after), step


def train(
    task: str, width: int, seeds: Sequence[int], changes: dict[str, Any]
) -> Iterator[list[dict[str, Any]]]:
    """The rows of seeds so far, again and again: seeds take turns, one window of steps each."""
    trainer = open_trainer(width)
    config = config_of(task, changes)
    started = [trainer.make_train(config)(jax.random.PRNGKey(seed)) for seed in seeds]
    (first, step), states = started[0], [jax.tree.leaves(state) for state, _ in started]
    each = config["NUM_ENVS"] * config["NUM_STEPS"]
    rollouts = max(1, WINDOW // each)

    def several(leaves: Any) -> Any:
        state = jax.tree.unflatten(jax.tree.structure(first), leaves)
        state, (totals, episodes) = jax.lax.scan(step, state, None, rollouts)
        return jax.tree.leaves(state), totals.sum(), episodes.sum()

    program = jax.jit(several).lower(states[0]).compile()
    about = {"setting": task, "width": width, "changes": changes, "git_commit": git_commit()}
    about["parameters"] = sum(leaf.size for leaf in jax.tree.leaves(first[0].params))
    rows = [about | {"seed": seed, "curve": []} for seed in seeds]
    for window in range(1, config["TOTAL_TIMESTEPS"] // (rollouts * each) + 1):
        for place, row in enumerate(rows):
            states[place], total, episodes = program(states[place])
            if count := int(episodes):  # environments in step end episodes of one length together
                found = [window * rollouts * each, count, round(float(total) / count, 6)]
                row["curve"].append(found)
        yield rows


def main() -> None:
    """Runs the missing trainings, and appends a row for each seed.

    A row's processor_seconds are those of the whole process up to that point.
    """
    parser = described(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--width", type=int, default=64, help="units of the GRU; published: 256")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--change", default="{}", help="further settings, as JSON")
    given = parser.parse_args()
    wanted = {"width": given.width, "changes": SCALED | json.loads(given.change)}
    given.folder.mkdir(parents=True, exist_ok=True)
    file = RowFile(given.folder / "rows.jsonl")
    for task in given.tasks:
        known = [
            row["seed"] for row in file.rows if row.items() >= (wanted | {"setting": task}).items()
        ]
        wished = range(given.first, given.first + given.seeds)
        seeds = [seed for seed in wished if seed not in known]
        rows: list[dict[str, Any]] = []
        try:
            for rows in train(task, **wanted, seeds=seeds) if seeds else ():
                log(f"{task}: {[row['curve'][-1:] for row in rows]}, {time.process_time():.0f} s")
        finally:
            file.append([row | {"processor_seconds": round(time.process_time())} for row in rows])


if __name__ == "__main__":
    main()
