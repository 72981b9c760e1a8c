"""What a policy meets in an environment, as the environment gives it, in either world."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from clew.bridges.gymnasium.task import GymnasiumTask
from clew.bridges.gymnasium.trials import ENDED
from clew.bridges.make import make_env
from clew.envs.base import Environment
from clew.envs.spaces import MASK
from clew.envs.trials import Trials
from clew.envs.wrappers import INFO, WrapperConfig
from clew.errors import UserError
from clew.interact.hosted_task import HostedTask
from clew.interact.tasks import make_task


class Moment(NamedTuple):
    """An observation before an action, and what led to it."""

    observation: Any
    """As the environment gives it."""
    start: bool
    """Whether it opens an episode."""
    reward: float | None
    """What the action before it earned; None at a start."""
    ended: bool = False
    """Whether the action before it ended an episode of a trial."""
    action_mask: Any = None
    """What is allowed, where the environment says it beside its observation; else None."""

    def given_to(self, policy: Callable[..., Any]) -> Any:
        """The action of a policy."""
        how: dict[str, Any] = {"ended": True} if self.ended else {}
        how |= {} if self.action_mask is None else {"action_mask": self.action_mask}
        return policy(self.observation, start=self.start, reward=self.reward, **how)


def play(
    env: str,
    options: dict[str, Any],
    wrappers: WrapperConfig,
    policy: Callable[..., Any],
    *,
    longest: int,
    seed: int = 0,
) -> Iterator[Moment]:
    """Plays one episode after another, without end, in one environment.

    Args:
        env: the task's name, see `make_task`.
        options: of the task.
        wrappers: of the training, of which those around the environment itself count, trials
            too.
        policy: chooses actions, called as `clew.Policy` is.
        longest: an episode is given up after so many actions.
        seed: of the episodes.

    Raises:
        UserError: the task is a factory of vector environments.
    """
    task = make_task(env, options, WrapperConfig())
    if isinstance(task, HostedTask):
        yield from _play_hosted(task.environment, wrappers, policy, longest, seed)
    else:
        made = make_env(env, **options)
        made = Trials(made, wrappers.trial_episodes) if wrappers.trials else made
        yield from _play_compiled(made, policy, longest, seed)


def _play_hosted(
    task: GymnasiumTask, wrappers: WrapperConfig, policy: Any, longest: int, seed: int
) -> Iterator[Moment]:
    if task.vector:
        raise UserError(f"{task.name} makes vector environments, not single ones")
    around = WrapperConfig(
        frame_skip=wrappers.frame_skip,
        time_limit=wrappers.time_limit,
        trial_episodes=wrappers.trial_episodes,
        trial_memory=wrappers.trial_memory,
    )
    env = task.builder(around)()
    mask = MASK if wrappers.action_mask == INFO else ""
    try:
        while True:
            observation, info = env.reset(seed=seed)
            moment, seed = Moment(observation, True, None, action_mask=info.get(mask)), seed + 1
            for _ in range(longest):
                yield moment
                observation, reward, *ends, info = env.step(moment.given_to(policy))
                if any(ends):
                    break
                ended = bool(info.get(ENDED))
                moment = Moment(observation, False, float(reward), ended, info.get(mask))
    finally:
        env.close()


def _play_compiled(env: Environment, policy: Any, longest: int, seed: int) -> Iterator[Moment]:
    reset, step, key = jax.jit(env.reset), jax.jit(env.step), jax.random.key(seed)
    allowed = jax.jit(env.action_mask)
    while True:
        key, now = jax.random.split(key)
        state, observation = reset(now)
        mask = _on_host(allowed(state))
        moment = Moment(_on_host(observation), True, None, action_mask=mask)
        for _ in range(longest):
            yield moment
            action = moment.given_to(policy)
            key, now = jax.random.split(key)
            state, told = step(state, np.asarray(action), now)
            if told.terminated or told.truncated:
                break
            ended, mask = bool(env.trial_goes_on(state)), _on_host(allowed(state))
            moment = Moment(_on_host(told.observation), False, float(told.reward), ended, mask)


def _on_host(observation: Any) -> Any:
    return jax.tree.map(np.asarray, observation)
