"""A learner's replay after some rollouts, for tests of rereading."""

from typing import Any

import equinox as eqx
import jax

from clew.agents.learners.r2d2 import R2D2
from clew.agents.learners.sac import SAC
from clew.envs import AutoReset
from clew.interact.rollout import gather, init_actor
from memory_samples import SMALL
from streams import agent_on

SMALL_REPLAY: dict[str, Any] = {
    "num_envs": 3,
    "rollout_length": 8,
    "sequence_length": 8,
    "burn_in": 4,
    "period": 4,
    "replay_steps": 3 * 8 * 6,
    "learning_starts": 0,
    "batch_size": 5,
}
"""Settings of a learner whose replay holds six rollouts."""


def gathered(learner: R2D2 | SAC, stream: AutoReset, memory: str, rollouts: int) -> tuple[Any, ...]:
    """An agent, the learner's state with this many rollouts in the replay, and the rollouts."""
    agent = agent_on(stream, memory, SMALL[memory], make_heads=learner.make_heads)

    @eqx.filter_jit
    def run(agent: Any, key: Any) -> Any:
        actor = init_actor(agent, stream, learner.config.num_envs, key)
        state, seen = None, []
        for number in range(rollouts):
            key, one = jax.random.split(key)
            length = learner.config.rollout_length
            made = gather(agent, actor, one, number * length, stream=stream, learner=learner)
            actor, rollout = made.actor, made.rollout
            if state is None:
                state = learner.init(agent, lambda rollout=rollout: rollout)
            state = learner.add(agent, state, rollout)
            seen.append(rollout)
        return state, seen

    return agent, *run(agent, jax.random.key(5))
