"""clew's PPO with the settings of popjaxrl's trainer in `benchmarks.popjaxrl`.

    python -m benchmarks.popjaxrl.their_settings results/popgym-popjaxrl --models gru
    python -m benchmarks.popjaxrl.their_settings results/popgym-popjaxrl/ends --plan ends

The agent with a GRU of `clew study popgym`, with these settings instead of PPO's defaults,
1,000,000 steps, then 500 fresh episodes. The remaining differences are the network, how an episode
that a time limit cuts off is valued, and the code. In the network, "gru-one-layer" has one layer of
64 units, as popjaxrl's, instead of two; in the plan "ends" the time limit terminates the episode,
as in gymnax 0.0.6. Run it again to resume.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec

import jax.numpy as jnp
from benchmarks.plans import run_plan

from clew import PPOConfig
from clew.envs.base import Transition
from clew.envs.popgym.multiarmed_bandit import MultiarmedBandit
from clew.envs.popgym.pendulum import PositionOnlyPendulum
from clew.lab.grid import Setting, Study
from clew.lab.studies.popgym import grid as popgym

SETTINGS = PPOConfig(
    num_envs=64,
    rollout_length=80,
    sequence_length=80,
    minibatches=8,
    epochs=6,
    learning_rate=2.5e-4,
    lam=1.0,
    value_clip=0.2,
    entropy_cost=0.0,
)
P = ParamSpec("P")
TASKS = ("multiarmed-bandit", "position-only-pendulum", "noisy-position-only-cartpole")


def ending(step: Callable[P, tuple[Any, Transition]]) -> Callable[P, tuple[Any, Transition]]:
    """A task's step, with a time limit that terminates."""

    @wraps(step)
    def ended(*args: P.args, **kwargs: P.kwargs) -> tuple[Any, Transition]:
        state, transition = step(*args, **kwargs)
        over = transition.terminated | transition.truncated
        return state, transition._replace(terminated=over, truncated=jnp.zeros_like(over))

    return ended


class EndingBandit(MultiarmedBandit):
    """`multiarmed_bandit`, with no value expected after the last pull."""

    step = ending(MultiarmedBandit.step)


class EndingPendulum(PositionOnlyPendulum):
    """`position_only_pendulum`, with no value expected after the last step."""

    step = ending(PositionOnlyPendulum.step)


def their_settings() -> Study:
    """The tasks in which popjaxrl's trainer and clew's were seen to differ, or nearly."""
    study, agent = popgym.study(), replace(popgym.agent("gru"), ppo=SETTINGS)
    one_layer = agent.memory_options | {"num_layers": 1}
    return replace(
        study,
        name="popgym-popjaxrl",
        models={"gru": agent, "gru-one-layer": replace(agent, memory_options=one_layer)},
        settings={task: study.settings[task] for task in TASKS},
    )


def ends() -> Study:
    """Two of them, with a time limit that terminates."""
    study = their_settings()
    here = "benchmarks.popjaxrl.their_settings"
    tasks = {"ending-pendulum": "EndingPendulum", "ending-bandit": "EndingBandit"}
    return replace(
        study,
        name="popgym-popjaxrl/ends",
        models={"gru": study.models["gru"]},
        settings={name: Setting(f"{here}:{place}") for name, place in tasks.items()},
    )


if __name__ == "__main__":
    run_plan(__doc__, {"their-settings": their_settings, "ends": ends}, seeds=3)
