"""Does ReZero learn what Transformer-XL does not because it begins as the identity?

    python -m benchmarks.identity_at_start results/identity-at-start --workers 2

In POPGym's table by PPO (results/popgym-easy-ppo) ReZero is ahead of Transformer-XL on Pendulum
without velocities, 0.83 against 0.34, and in labyrinth-explore, 0.95 against -0.18. They have the
same window, heads and positions. They differ in two things: ReZero has no norms, and a weight on
what a layer adds that begins at 0. Here both are trained again, with the seeds 100 to 104, and
beside them Transformer-XL with its norms before the sublayers, where the path past them is left
alone as in ReZero, and without any norms.

Expected, written down before the first run: ReZero is ahead of Transformer-XL in both tasks again;
with norms before the sublayers it earns above 0.6 on Pendulum and above 0.8 in the labyrinth, so
that no zero is needed; without norms it is worse than ReZero on Pendulum, since nothing bounds what
the layers add. The rule: Welch's test of the three others against ReZero in each task, p below 0.05
after Holm's correction for six. If norms before the sublayers are not told apart from ReZero and
both are above norms after them, the advice for transformers names `norm=before` too.

Run it again to resume.
"""

from dataclasses import replace

from benchmarks.plans import on_popgym, run_plan

from clew.lab.grid import Study
from clew.lab.studies.popgym import grid

TASKS = ["position-only-pendulum", "labyrinth-explore"]
FIRST_SEED = 100


def identity_at_start() -> Study:
    """The table's ReZero, and its Transformer-XL with norms in three places."""
    agent = grid.agent("transformer_xl")
    models = {"rezero": grid.agent("rezero")}
    for norm in ("after", "before", "none"):
        options = agent.memory_options | {"norm": norm}
        models[f"norms-{norm}"] = replace(agent, memory_options=options)
    return on_popgym("identity-at-start", models, TASKS)


if __name__ == "__main__":
    run_plan(__doc__, {"identity-at-start": identity_at_start}, first=FIRST_SEED, seeds=5)
