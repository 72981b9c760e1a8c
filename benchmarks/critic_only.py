"""Does a critic that sees the task's whole state help the agent to use its memory?

    python -m benchmarks.critic_only results/critic-only --workers 2

The table's agents (results/popgym-easy-ppo) have a critic that reads what the actor reads: the
memory's output. A simulation knows more: where the mines are, how often each arm pays, how fast the
pendulum turns. Here the critic of the table's GRU also reads the whole state of the task, as
numbers (`critic_only`; Baisero and Amato, 2022), in five of POPGym's easy tasks, with the seeds 100
to 104. The same GRU with the usual critic has rows with these seeds in results/joint-encoder.

Expected, written down before the first run: the values are better, so that the policy learns
faster. More in the bandit and in mine-sweeper, by 0.05 each, in count-recall by 0.1, on
position-only-pendulum by 0.03; in battleship, which no agent has learned, nothing. The rule:
Welch's test of each task, p below 0.05 after Holm's correction for five.

Run it again to resume.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.plans import run_plan
from gymnasium.spaces import Box, Dict
from jaxtyping import Array, Float

import clew
from clew.envs.base import EnvState, Observation, ObservationWrapper
from clew.lab.grid import Setting, Study
from clew.lab.studies.popgym import grid

TASKS = [
    *("multiarmed-bandit", "mine-sweeper", "battleship"),
    *("count-recall", "position-only-pendulum"),
]
FIRST_SEED = 100


class WithState(ObservationWrapper):
    """A task that shows its state, all numbers on one axis, as the entry "state"."""

    def __init__(self, task: str):
        super().__init__(clew.make_env(task))

    @property
    def observation_space(self) -> Dict:
        state = jax.eval_shape(self.env.reset, jax.random.key(0))[0]
        size = sum(leaf.size for leaf in jax.tree.leaves(state))
        shown = Box(-np.inf, np.inf, (size,), np.float32)
        return Dict(observation=self.env.observation_space, state=shown)

    def shown(self, state: EnvState, observation: Observation) -> Observation:
        return {"observation": observation, "state": numbers(state)}

    def task_observation(self, observation: Observation) -> Observation:
        return observation["observation"]


def numbers(state: EnvState) -> Float[Array, " n"]:
    """All numbers of a state on one axis."""
    leaves = jax.tree.leaves(state)
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves])


def critic_only() -> Study:
    """The table's GRU with a critic that sees the state."""
    agent = grid.agent("gru")
    informed = replace(agent, network=replace(agent.network, critic_only=("state",)))
    return replace(
        grid.study(),
        name="critic-only",
        models={"gru-informed-critic": informed},
        settings={
            task: Setting("benchmarks.critic_only:WithState", {"task": task.replace("-", "_")})
            for task in TASKS
        },
        weights={},
    )


if __name__ == "__main__":
    run_plan(__doc__, {"critic-only": critic_only}, first=FIRST_SEED, seeds=5)
