"""How long a list does a memory give back in order?

    python -m benchmarks.lists results/lists

A list of 5, 10 or 20 cards is shown one by one, then every card is to be played once in the same
order (`permutation`): every memory, A2C at its defaults, 500,000 steps, two layers of 64 where a
memory has layers, five seeds, then 200 fresh episodes with sampled actions. The score is the share
of cards that are played in their turn, of which an order that has nothing to do with the list gets
1/n. It goes on where it stopped.
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
