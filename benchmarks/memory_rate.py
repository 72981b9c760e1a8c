"""Should a memory learn at a rate of its own? A GRU and S5 by PPO, on three of POPGym's tasks.

    python -m benchmarks.memory_rate results/memory-rate --workers 2

Luo et al. (2024, RESeL) give the recurrent part of an off-policy learner a thirtieth of the rest's
learning rate, and find it stable only then. In results/residual-weight S5 and Mamba-2 gain on
Pendulum by a weight that begins at 0, and in results/s5-with-weight S5 loses repeat-first by it.
Such a weight lets the memory's part of the output grow slowly; a smaller learning rate of the
memory alone does that as well. So the table's agents are trained with a tenth of PPO's learning
rate for the memory (`memory_rate`), with three times it, and with the same, in three tasks:
Pendulum without velocities; repeat-first; and count-recall, which no memory has learned well in a
million steps.

Expected, written down before the first run with the seeds 100 to 104: with a tenth S5 is ahead on
Pendulum by 0.2, as with the weight, and behind in repeat-first by 0.3; the GRU is behind in
repeat-first and count-recall, since less is learned in the same time. With three times nothing is
told apart for the GRU, and S5 is ahead in count-recall by 0.05. The rule: Welch's test of each rate
against 1, for each memory in each task, p below 0.05 after Holm's correction for twelve. If a rate
is ahead in at least two of its six cases and behind in none, the page of the learners recommends to
try it with PPO; otherwise it says what was seen. If S5 with a tenth is told apart upwards on
Pendulum and downwards in repeat-first, slow growth is enough to explain what the weight does; if it
gains nothing there and loses nothing here, slow growth does not explain it.

Run it again to resume.
"""

from dataclasses import replace
from functools import partial

from benchmarks.plans import beside, on_popgym, run_plan

from clew import TrainConfig
from clew.lab.grid import Study

MEMORIES = ("gru", "s5")
RATES = {"tenth": 0.1, "triple": 3.0}
TASKS = ["position-only-pendulum", "repeat-first", "count-recall"]
FIRST_SEED = 100


def memory_rate() -> Study:
    """The table's agents, each with PPO's learning rate for the memory and with two others."""

    def at(rate: float, agent: TrainConfig) -> TrainConfig:
        return replace(agent, ppo=replace(agent.ppo, memory_rate=rate))

    rates = {name: partial(at, rate) for name, rate in RATES.items()}
    return on_popgym("memory-rate", beside(MEMORIES, rates), TASKS)


if __name__ == "__main__":
    run_plan(__doc__, {"memory-rate": memory_rate}, first=FIRST_SEED, seeds=5)
