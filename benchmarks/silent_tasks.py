"""Do the tasks on which POPGym's table tells nothing become informative with other PPO settings?

    python -m benchmarks.silent_tasks results/silent-tasks --workers 2
    python -m benchmarks.silent_tasks results/silent-tasks/again --plan again --first 110 --seeds 5
    python -m benchmarks.silent_tasks results/silent-tasks/longer --plan longer --workers 2
    python -m benchmarks.silent_tasks results/silent-tasks/escape --plan escape --workers 2
    python -m benchmarks.silent_tasks results/silent-tasks/elsewhere --plan elsewhere --seeds 5
    python -m benchmarks.silent_tasks results/silent-tasks/rewards --plan rewards --seeds 5

In the table of the easy tasks by PPO (results/popgym-easy-ppo) no memory earns more in
labyrinth-escape, battleship and concentration than random actions do, and in autoencode none more
than a policy without memory can, though all could earn much more. Is the cause the million steps,
or the learner's settings? Here the GRU of the table runs in these four tasks with three fresh seeds
from 100 on, unchanged and with one change each:

- sequences of 128 steps instead of 32, so that gradients reach back over nearly an episode of
  autoencode or concentration (103 and 104 steps);
- 64 environments instead of 8, so that minibatches have 2048 steps instead of 256, and an eighth of
  the gradient steps; where a reward is rare, most minibatches of 256 have none, and their
  advantages, scaled to a deviation of 1, are noise;
- advantages without scaling;
- gamma 0.999 instead of 0.99, since an episode of a labyrinth has up to 1024 steps;
- lambda 1 instead of 0.95;
- an entropy bonus of 0.05 instead of 0.01;
- five million steps, the plans "longer" and, in labyrinth-escape, "escape".

Expected, written down before the first run: in labyrinth-escape 64 environments bring more than
random actions, -0.43, and more than 0, and so do advantages without scaling and five million
steps; gamma and lambda alone do not. Nothing moves battleship or concentration by 0.1 but five
million steps. Sequences of 128 steps move autoencode by less than 0.05, and so do five million
steps.

The rule: these are 28 comparisons with three seeds each, which decide nothing. In each task the
change with the highest mean, if it is 0.1 above the unchanged GRU and above what random actions or
no memory earn, is tried again with five fresh seeds, 110 to 114, with the GRU and with no memory,
in a plan that is made then. A task is informative if there the GRU with the change is above the
unchanged GRU and above no memory with the change, by Welch's test with Holm's correction for all of
these.

Added when all of the first plan had been seen: only labyrinth-escape has such a change, advantages
without scaling, -0.34 beside -0.96, and is tried "again". That is what random actions earn, or
little more, so five million steps with it are tried too. Expected: again about -0.35, above the
unchanged GRU and not above no memory; with five million steps above 0.

Added when "again" had been seen (-0.30 of the GRU, -0.33 of no memory, -0.97 of the unchanged GRU):
what does it cost "elsewhere"? The GRU with advantages without scaling in five tasks that it learns,
with the seeds 100 to 104, beside the unchanged GRU with these in results/joint-encoder. Expected:
behind in all five, since rewards of a few hundredths are then small beside the entropy bonus; by
0.1 or more in count-recall and mine-sweeper, by less in repeat-previous, the bandit and
position-only-pendulum. The rule: Welch's test with Holm's correction for five.

Added when "elsewhere" had been seen except for repeat-previous (count-recall -0.88, the bandit
0.00: nothing is learned there): is there one setting for both? "rewards" are ten times as large, so
that advantages of the tasks whose rewards are a few hundredths have a deviation of about 1, and
advantages are not scaled. Expected: -0.2 or more in labyrinth-escape, and in each of the five tasks
within 0.1 of the unchanged GRU. The rule: Welch's test with Holm's correction for six, of
labyrinth-escape beside the unchanged GRU of "again".

Run it again to resume.
"""

from dataclasses import replace
from typing import Any

from benchmarks.plans import on_popgym, run_plan

from clew import PPOConfig, TrainConfig
from clew.lab.grid import Study
from clew.lab.studies.popgym import grid

ESCAPE = "labyrinth-escape"
TASKS = [ESCAPE, "battleship", "concentration", "autoencode"]
LEARNED = [
    *("repeat-previous", "count-recall", "mine-sweeper"),
    *("multiarmed-bandit", "position-only-pendulum"),
]
CHANGES: dict[str, dict[str, Any]] = {
    "as-it-is": {},
    "sequences-128": {"sequence_length": 128},
    "64-environments": {"num_envs": 64},
    "unscaled": {"advantage_normalisation": False},
    "gamma-0.999": {"gamma": 0.999},
    "lambda-1": {"lam": 1.0},
    "entropy-0.05": {"entropy_cost": 0.05},
}
FIRST_SEED = 100


def silent_tasks() -> Study:
    """The unchanged GRU, and the GRU with one change each."""
    models = {name: changed("gru", **settings) for name, settings in CHANGES.items()}
    return on_popgym("silent-tasks", models, TASKS)


def again() -> Study:
    """The change that seemed to matter, with the GRU and without a memory."""
    models = {
        "gru": changed("gru"),
        "gru-unscaled": changed("gru", **CHANGES["unscaled"]),
        "none-unscaled": changed("none", **CHANGES["unscaled"]),
    }
    return on_popgym("silent-tasks-again", models, [ESCAPE])


def longer() -> Study:
    """The unchanged GRU, for five times as long."""
    study = replace(silent_tasks(), name="silent-tasks-longer", steps=5_000_000)
    return study.only(["as-it-is"], [task for task in TASKS if task != ESCAPE])


def escape() -> Study:
    """The GRU, unchanged and with the change, for five times as long."""
    study = replace(silent_tasks(), name="silent-tasks-escape", steps=5_000_000)
    return study.only(["unscaled", "as-it-is"], [ESCAPE])


def changed(memory: str, **settings: Any) -> TrainConfig:
    """The table's agent with some settings of PPO changed."""
    return replace(grid.agent(memory), ppo=PPOConfig(**settings))


def elsewhere() -> Study:
    """The change in tasks that the unchanged GRU learns."""
    models = {"gru-unscaled": changed("gru", **CHANGES["unscaled"])}
    return on_popgym("silent-tasks-elsewhere", models, LEARNED)


def rewards() -> Study:
    """The change, with rewards that are ten times as large."""
    agent = changed("gru", **CHANGES["unscaled"])
    scaled = replace(agent, wrappers=replace(agent.wrappers, reward_scale=10.0))
    models = {"gru-unscaled-rewards-10": scaled}
    return on_popgym("silent-tasks-rewards", models, [ESCAPE, *LEARNED])


PLANS = {
    "silent-tasks": silent_tasks,
    "again": again,
    "longer": longer,
    "escape": escape,
    "elsewhere": elsewhere,
    "rewards": rewards,
}


if __name__ == "__main__":
    run_plan(__doc__, PLANS, first=FIRST_SEED, seeds=3)
