"""For every learner with a replay, rereading gives the values of acting."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from clew.agents.learners.r2d2 import R2D2, R2D2Config
from clew.agents.learners.sac import SAC, SACConfig
from clew.memory import MEMORIES
from memory_samples import quick_compilation
from replays import SMALL_REPLAY, gathered
from slow_cases import fast_only
from streams import short_maze

__all__ = ["quick_compilation"]

LEARNERS = {
    "r2d2": lambda first: R2D2(R2D2Config(**SMALL_REPLAY, first_state=first)),
    "sac": lambda first: SAC(SACConfig(**SMALL_REPLAY, first_state=first)),
}


def read_again(agent: Any, learner: R2D2 | SAC, batch: Any) -> Any:
    """The values of sequences, after the burn-in."""
    kept = batch.state0 if isinstance(learner, R2D2) else batch.state0[0]
    states = learner.replayed.states(agent, kept, batch.read)
    return learner.replayed.values(agent, states, batch.learned).outputs.value


READ_AGAIN = [(name, "refreshed", "r2d2") for name in MEMORIES] + [
    ("gtrxl", "stored", "r2d2"),
    ("gtrxl", "stored", "sac"),
    ("gru", "refreshed", "sac"),
    ("gtrxl", "refreshed", "sac"),
]
QUICK = [("gru", "refreshed", "r2d2")]


@pytest.mark.parametrize(
    ("name", "first_state", "algorithm"),
    fast_only(READ_AGAIN, *QUICK),
)
def test_what_was_acted_is_what_is_read_again(name: str, first_state: str, algorithm: str) -> None:
    """With the same parameters, from a state stored before a burn-in, values agree to 1e-5.

    Episodes of up to four steps end within burn-in and sequences, by termination and truncation.
    """
    stream = short_maze()
    learner = LEARNERS[algorithm](first_state)
    agent, state, rollouts = gathered(learner, stream, name, 4)

    @eqx.filter_jit
    def reread(agent: Any, key: Any) -> Any:
        drawn = learner.replayed.draw(state.replay, key)
        batch = learner.replayed.take(state.replay, drawn)
        return drawn, batch, read_again(agent, learner, batch)

    drawn, batch, values = reread(agent, jax.random.key(1))
    assert np.asarray(batch.learned.start[1:]).any() and np.asarray(batch.learned.last).any()
    acted = np.concatenate([np.asarray(r.chunks.value).reshape(-1, 3) for r in rollouts])
    places = np.asarray(state.replay.numbers)[np.asarray(drawn.block)]
    for at, (number, env) in enumerate(zip(places, np.asarray(drawn.environment), strict=True)):
        expected = acted[number * 4 : number * 4 + 8, env]
        assert np.abs(values[:-1, at] - expected).max() / (1 + np.abs(expected).max()) < 1e-5
