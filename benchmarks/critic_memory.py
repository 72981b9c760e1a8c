"""Should the critic have a memory of its own? A GRU and S5 by PPO, on three of POPGym's tasks.

    python -m benchmarks.critic_memory results/critic-memory --workers 2

Recurrent PPO shares one memory between actor and critic in some libraries (CleanRL, Stoix), and in
others each has its own (SB3-Contrib's default). Shared, the memory learns from both losses, and
where returns are large mostly from the value's, since the gradient is clipped as a whole. So the
table's agents are trained with a critic that has an encoder and a memory of its own
(`memory_of_critic`), and as they are, in three tasks: Pendulum without velocities, where most
memories with layers fail; repeat-first; and count-recall.

Expected, written down before the first run with the seeds 100 to 104: on Pendulum S5 is ahead with
two memories, by 0.2, and the GRU is not told apart; in repeat-first both are behind with two, by
0.1 or more, since the value no longer teaches the actor's memory what to keep; in count-recall
nothing is told apart. The rule: Welch's test of two memories against one, for each memory in each
task, p below 0.05 after Holm's correction for six. The page of the networks says what is told
apart, and at which price in time.

Run it again to resume.
"""

from dataclasses import replace

from benchmarks.plans import beside, on_popgym, run_plan

from clew import TrainConfig
from clew.lab.grid import Study

MEMORIES = ("gru", "s5")
TASKS = ["position-only-pendulum", "repeat-first", "count-recall"]
FIRST_SEED = 100


def critic_memory() -> Study:
    """The table's agents, each with one memory and with two."""

    def separate(agent: TrainConfig) -> TrainConfig:
        return replace(agent, network=replace(agent.network, memory_of_critic="separate"))

    return on_popgym("critic-memory", beside(MEMORIES, {"separate": separate}), TASKS)


if __name__ == "__main__":
    run_plan(__doc__, {"critic-memory": critic_memory}, first=FIRST_SEED, seeds=5)
