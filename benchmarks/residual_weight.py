"""Does a weight that begins at 0 help memories with layers, as it helps a transformer?

    python -m benchmarks.residual_weight results/residual-weight --workers 2

In POPGym's table by PPO (results/popgym-easy-ppo) a GRU earns 0.81 on Pendulum without velocities,
and most memories with pre-norm layers about as much as no memory, 0.39. ReZero earns 0.83, because
a learned weight on what its layers add begins at 0 (results/identity-at-start). Here S5, Mamba-2
and the RG-LRU are trained with such a weight (`residual_weight`) and without, in three tasks: that
one, labyrinth-explore, which needs no memory, and repeat-previous, which needs one from the
beginning and in which one of ReZero's three seeds failed. With three other seeds the weight was
tried before in S5 alone: its mean was 0.77 instead of 0.44 on Pendulum, and 0.95 instead of 0.92 in
the labyrinth.

Expected, written down before the first run with the seeds 100 to 104: on Pendulum each of the three
is ahead with the weight, by more than 0.2; in the labyrinth Mamba-2 and the RG-LRU are; on
repeat-previous none is told apart. The rule: Welch's test of with against without, for each memory
in each task, p below 0.05 after Holm's correction for nine. If the weight is ahead on Pendulum in
at least two memories, the advice for hidden states names it for memories with layers, with what it
costs in the other two tasks.

    python -m benchmarks.residual_weight results/s5-with-weight --plan in-all --first 0 --seeds 3

trains S5 with the weight in all sixteen tasks, with the seeds of the table, whose rows are the
comparison. Expected, written down when the study above had all runs but six of the RG-LRU's: the
mean over the fifteen tasks that count rises from 0.40 to about 0.45, a GRU's, by the two Pendulums
alone, and no task is told apart below (Welch's test, Holm's correction for sixteen).

    python -m benchmarks.residual_weight results/s5-with-weight/first --plan first --workers 2

asks whether what was seen there is the price: S5's three seeds earned -0.49, 0.03 and 0.16 in
repeat-first with the weight, and 0.48, 0.49 and 0.63 without. Expected, written down before the
first run with the seeds 100 to 104: with the weight it is behind by 0.3 or more, and told apart
(Welch's test, p below 0.05).

Run it again to resume.
"""

from dataclasses import replace

from benchmarks.plans import beside, on_popgym, run_plan

from clew import TrainConfig
from clew.lab.grid import Study
from clew.lab.studies.popgym import grid

MEMORIES = ("s5", "mamba2", "rg_lru")
TASKS = ["position-only-pendulum", "labyrinth-explore", "repeat-previous"]
FIRST_SEED = 100


def residual_weight() -> Study:
    """The table's agents, each with the weight and without."""

    def weighted(agent: TrainConfig) -> TrainConfig:
        options = agent.memory_options | {"residual_weight": True}
        return replace(agent, memory_options=options)

    return on_popgym("residual-weight", beside(MEMORIES, {"weight": weighted}), TASKS)


def in_all() -> Study:
    """S5 with the weight, in every task."""
    weighted = residual_weight().models["s5-weight"]
    return on_popgym("s5-with-weight", {"s5-weight": weighted}, list(grid.study().settings))


def first() -> Study:
    """S5 with the weight and without, where the first card has to be kept."""
    models = residual_weight().models
    both = {name: models[name] for name in ("s5", "s5-weight")}
    return on_popgym("s5-first", both, ["repeat-first"])


if __name__ == "__main__":
    plans = {"residual-weight": residual_weight, "in-all": in_all, "first": first}
    run_plan(__doc__, plans, first=FIRST_SEED, seeds=5)
