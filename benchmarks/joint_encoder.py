"""Does an agent earn more if its encoder reads the observation and the previous action together?

    python -m benchmarks.joint_encoder results/joint-encoder --workers 2

In POPGym's table by PPO two layers read the observation, and the memory receives the previous
action beside them, unencoded. In the bandit an agent whose layers read both earned 0.42 and clew's
0.33, and with only that agent's encoder clew's earned 0.37 (results/popgym-popjaxrl). Here the GRU
of the table runs with `encoder="joint"` and unchanged, five fresh seeds of each, 100 to 104, in six
tasks: three where an action and its result mean something together (the bandit's arm, the squares
of mine-sweeper and battleship), and three where the observation contains everything (count-recall,
position-only-pendulum, repeat-previous).

Expected, written down before the first run: in the bandit more by 0.04, in mine-sweeper by 0.1, in
battleship nothing, since no agent has learned it; in the other three nothing. The rule: Welch's
test of each task, p below 0.05 after Holm's correction for six. If the bandit or mine-sweeper is
told apart, or their mean gain is above 0.05, the table's other agents are to be tried too before
its default is changed.

Run it again to resume.
"""

from dataclasses import replace

from benchmarks.plans import on_popgym, run_plan

from clew.lab.grid import Study
from clew.lab.studies.popgym import grid

TASKS = [
    *("multiarmed-bandit", "mine-sweeper", "battleship"),
    *("count-recall", "position-only-pendulum", "repeat-previous"),
]
FIRST_SEED = 100


def joint_encoder() -> Study:
    """The table's GRU with both encoders."""
    agent = grid.agent("gru")
    joint = replace(agent, network=replace(agent.network, encoder="joint"))
    models = {"gru-joint": joint, "gru": agent}
    return on_popgym("joint-encoder", models, TASKS)


if __name__ == "__main__":
    run_plan(__doc__, {"joint-encoder": joint_encoder}, first=FIRST_SEED, seeds=5)
