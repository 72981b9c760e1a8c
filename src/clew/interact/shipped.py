"""A run's agent for use outside of training, behind the wrappers that it was trained with."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from clew.bridges.gymnasium.spaces import adapt_action, adapt_observation
from clew.bridges.gymnasium.wrappers import Transforms
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError
from clew.interact.hosted_task import HostedTask
from clew.interact.policy import Policy
from clew.interact.tasks import make_task
from clew.run.load import Loaded, load_agent


class ShippedPolicy:
    """Chooses actions from what an environment itself observes, and remembers what it saw.

        policy = clew.load_policy("runs/cartpole")
        observation, _ = env.reset()
        action = policy(observation, start=True)       # the first observation of an episode
        observation, reward, *_ = env.step(action)
        action = policy(observation, reward=reward)    # every other one

    Between environment and agent stands what stood there in training, with the statistics of the
    checkpoint, which learn no more: entries that are kept, normalised observations, the previous
    action, and the previous reward, scaled as it was. What makes another environment is not in
    it: `frame_skip` (repeat the action, sum the rewards) and `time_limit`.

    Args:
        loaded: an agent and its run.
        greedy: take the most probable action (deterministic), instead of sampling from the policy.
        seed: of the samples when not greedy.
    """

    def __init__(self, loaded: Loaded, *, greedy: bool = True, seed: int = 0):
        config = loaded.config
        self._wrappers = config.wrappers
        task = make_task(config.env, config.env_options, WrapperConfig())
        if isinstance(task, HostedTask):
            self._adapt = task.environment.observations
            self._act = adapt_action(task.environment.own_action_space, config.env)
        else:
            self._adapt = adapt_observation(task.observation_space, config.env)
            self._act = None
        self._transforms = Transforms(
            config.wrappers, self._adapt.space, task.action_space, 1, frozen=True
        )
        self._first = getattr(task.action_space, "start", 0)
        self._transforms.restore(loaded.statistics or {})
        self._policy = Policy(loaded.agent, greedy=greedy, seed=seed)
        self._taken: np.ndarray | None = None

    def __call__(self, observation: Any, start: bool = False, reward: float | None = None) -> Any:
        """The action for this observation.

        Args:
            observation: as the environment gives it.
            start: whether the observation opens an episode; everything else is forgotten first.
            reward: what the last action earned, as the environment gave it. Only agents that see
                their previous reward have a use for it, and need it, but not at a start.

        Returns:
            What the environment takes: an int for one discrete action, otherwise an array.

        Raises:
            UserError: if the observation is of another shape, or the reward is missing.
        """
        opens = bool(start) or self._taken is None
        if opens:
            self._transforms.begin()
        elif self._wrappers.previous and reward is None:
            raise UserError(
                "this agent sees its previous reward: give policy(observation, reward=...), or "
                "start=True if the observation opens an episode"
            )
        counted, flags = np.array([not opens]), np.array([opens])
        given = np.array([0.0 if opens or reward is None else reward], np.float32)
        earned = self._transforms.reward(given, counted, np.zeros(1, bool))
        raw = jax.tree.map(lambda x: x[None], self._adapt(observation))
        seen = self._transforms.observe(raw, self._taken, earned, flags)
        action = self._policy(jax.tree.map(lambda x: x[0], seen), start=opens)
        self._taken = np.asarray(action)[None] - self._first
        if self._act is None:  # a task in JAX takes what the agent chooses
            return action
        own = self._act(self._taken)[0]
        return int(own) if np.ndim(own) == 0 else own

    def reset(self) -> None:
        """Forgets everything, as before the first observation."""
        self._policy.reset()
        self._taken = None


def load_policy(
    path: str | Path,
    seed_index: int = 0,
    *,
    checkpoint: str = "",
    greedy: bool = True,
    seed: int = 0,
) -> ShippedPolicy:
    """The agent of a run with its wrappers, for observations as its environment gives them.

    Args:
        path: the run's folder or name.
        seed_index: which of the run's seeds, from 0.
        checkpoint: its file name or update; empty takes the newest good one.
        greedy: take the most probable action (deterministic), instead of sampling from the policy.
        seed: of the samples when not greedy.

    Raises:
        UserError: if there is no such run, seed or checkpoint, or the checkpoint is damaged.
    """
    return ShippedPolicy(load_agent(path, seed_index, checkpoint), greedy=greedy, seed=seed)
