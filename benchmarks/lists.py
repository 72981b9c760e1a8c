"""How long a list can a memory recall in order?

    python -m benchmarks.lists results/lists

A list of 5, 10 or 20 cards is shown one by one, then every card must be played once in the same
order (`permutation`): every memory, A2C at its defaults, 500,000 steps, two layers of 64 where a
memory has layers, five seeds, then 200 fresh episodes with sampled actions. The score is the share
of cards that are played in their turn; an order independent of the list gets 1/n. Run it again to
resume.
"""

from benchmarks.plans import agents, run_plan

from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.popgym.grid import MODELS

CARDS = (5, 10, 20)


def lists() -> Study:
    """Three lengths of a list."""
    return Study(
        name="lists",
        models=agents(MODELS),
        settings={f"cards-{n}": Setting("permutation", {"num_cards": n}) for n in CARDS},
        steps=500_000,
        evaluation=Evaluation(episodes=200),
        score="correct",
    )


if __name__ == "__main__":
    run_plan(__doc__, {"lists": lists})
