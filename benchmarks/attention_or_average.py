"""Does AReLiT's attention ever beat the average that it is with r = 1?

    python -m benchmarks.associative_recall results/attention-or-average --together --first 10 \\
        --seeds 10 --memories arelit-1 arelit-3 arelit-7 arelit-15 arelit-3-full arelit-7-full \\
        arelit-15-full relit gru linear_transformer
    python -m benchmarks.attention_or_average results/attention-or-average-rewards --seeds 10

Two tasks, gates that start open in all forms (the default), ten fresh seeds:

- associative recall, learned from labels, with a key beside its value, so that nothing has to be
  bound first; the score is the share of right answers with 16 pairs;
- the distributed memory of 30 steps and 9 bits, learned from reward: the majority of the bits,
  which are shown one at a time; A2C at its defaults, 3,000,000 steps; the score is the return.

The rule, written down before the first run: each of the six forms with more waves is compared with
r = 1 by Welch's test, with Holm's correction for the twelve; attention beats the average in a task
if one of its forms does. If none does, we report which differences the best form's interval leaves
possible. ReLiT, the linear transformer and a GRU are run beside them and decide nothing. Expected:
in associative recall, forms with more waves recall more than the average, the more waves the more,
and less than the linear transformer; in the distributed memory, for which an average is made, there
is no difference. Seeds 0 to 2 of ReLiT, the GRU and the linear transformer were seen before. Run
both again to resume.
"""

from benchmarks.associative_recall import FORMS
from benchmarks.plans import run_plan

from clew import TrainConfig
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.studies.popgym.grid import SIZES
from clew.memory import options_among

BESIDE = ("relit", "gru", "linear_transformer")
FIRST_SEED = 10


def distributed() -> Study:
    """The distributed memory, by reward."""
    forms = {name: ("arelit", options) for name, options in FORMS.items()}
    forms |= {name: (name, {}) for name in BESIDE}
    models = {
        name: TrainConfig(memory=kind, memory_options=options_among(kind, SIZES) | options)
        for name, (kind, options) in forms.items()
    }
    task = Setting("distributed_memory", {"memory_length": 30, "num_bits": 9})
    return Study(
        name="attention-or-average",
        models=models,
        settings={"distributed": task},
        steps=3_000_000,
        evaluation=Evaluation(episodes=1000),
        score="return",
        resumable=True,
    )


if __name__ == "__main__":
    run_plan(__doc__, {"distributed": distributed}, first=FIRST_SEED)
