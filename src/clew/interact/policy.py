"""A trained agent as a plain object that keeps its memory's state: what is shipped."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from clew.agents.distributions import Distribution
from clew.agents.encoders import Dense
from clew.agents.network import Agent
from clew.bridges.gymnasium.masks import ActionMasks
from clew.bridges.gymnasium.spaces import ActionAdapter, ObservationAdapter, mask_of_info
from clew.bridges.gymnasium.wrappers import VectorWrappers
from clew.envs.spaces import MASK, PREVIOUS_REWARD, join_mask, take_entry
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError, one_line


class PolicyAdapter(NamedTuple):
    """What stands between an environment and its agent."""

    observations: ObservationAdapter
    """From the environment's observations to those that the wrappers take."""
    actions: ActionAdapter | None
    """From the agent's actions to the environment's; None where they are the same."""
    action_space: spaces.Space
    """What the agent chooses from."""
    own_action_space: spaces.Space
    """What the environment takes."""
    wrappers: WrapperConfig
    statistics: dict[str, Any]
    """What the wrappers learned in training, see `VectorWrappers.state`."""

    @property
    def masks(self) -> ActionMasks | None:
        """Where the action mask is; None for nowhere."""
        return ActionMasks.of(self.wrappers, self.action_space)

    @property
    def unmasked(self) -> spaces.Space:
        """What is observed beside the action mask, before the wrappers."""
        masks = self.masks
        return self.observations.space if masks is None else masks.rest(self.observations.space)

    @property
    def first_action(self) -> np.ndarray | int:
        """What the agent calls the first of its discrete actions, or of each of several."""
        space = self.action_space
        choices = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        return np.asarray(space.start) if choices else 0

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the environment calls each action of a Discrete that is not counted from 0."""
        space = self.own_action_space
        if not isinstance(space, spaces.Discrete) or space.start == 0:
            return ()
        return tuple(str(space.start + action) for action in range(int(space.n)))

    def taken(self, distribution: Distribution, kept: np.ndarray) -> np.ndarray:
        """Actions [T, ...] as the environment takes them, of those that a distribution keeps."""
        actions = np.asarray(distribution.decode(kept))
        return actions if self.actions is None else self.actions(actions)


class Moment(NamedTuple):
    """An observation before an action as the environment gives it, and what led to it."""

    observation: Any
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


class TrainedWrappers:
    """The wrappers that stood between environment and agent in training, for one environment.

    Their statistics are those of the checkpoint and stay as they are.

    Args:
        adapter: of the task.
        read: the array of each leaf of an observation, or a `UserError` for one that the task does
            not give.
    """

    def __init__(self, adapter: PolicyAdapter, read: Callable[[Any], list[np.ndarray]]):
        self._adapter, self._masks, self._read = adapter, adapter.masks, read
        self._wrappers = VectorWrappers(
            adapter.wrappers, adapter.unmasked, adapter.action_space, 1, frozen=True
        )
        self._wrappers.restore(adapter.statistics)
        self._taken: np.ndarray | None = None

    def observe(self, now: Moment) -> PyTree[np.ndarray]:
        """What the agent sees of an observation, and of its previous action and reward.

        Raises:
            UserError: if the observation is none of its space, the reward or the action mask is
                missing, or the mask allows nothing.
        """
        read = self._read(now.observation)
        if now.start:
            self._wrappers.begin()
            self._taken = None
        elif PREVIOUS_REWARD in self._adapter.wrappers.shows_previous and now.reward is None:
            raise UserError(
                "this agent sees its previous reward: call policy(observation, reward=...), or "
                "start=True if the observation opens an episode"
            )
        counted, start = np.array([not now.start]), np.array([now.start])
        given = np.array([0.0 if now.start or now.reward is None else now.reward], np.float32)
        earned = self._wrappers.reward(given, counted, np.zeros(1, bool))
        observations = self._adapter.observations
        raw = observations.named(
            [leaf.adapt(x[None]) for leaf, x in zip(observations.leaves, read, strict=True)]
        )
        raw, mask = self._split(raw, now.action_mask)
        seen = self._wrappers.observe(raw, self._taken, earned, start, np.array([now.ended]))
        seen = observations.nested(seen)
        seen = seen if mask is None else join_mask(seen, mask != 0)
        return jax.tree.map(lambda x: x[0], seen)

    def _split(self, raw: Any, action_mask: Any) -> tuple[Any, np.ndarray | None]:
        """What is observed beside the action mask, and the mask [1, n], if there is one."""
        if self._masks is None:
            return raw, None
        if not self._masks.in_info:
            raw, mask = take_entry(raw, self._masks.source)
        elif action_mask is None:
            raise UserError(
                "this agent was trained with action masks: call policy(observation, "
                f'action_mask=info["{MASK}"])'
            )
        else:
            mask = mask_of_info({MASK: action_mask}, self._masks.size, False)[None]
        wrong = self._masks.wrong(mask)[1]
        if wrong:
            raise UserError(f"the policy got {wrong}")
        return raw, mask

    def act(self, action: np.ndarray) -> np.ndarray:
        """The agent's action as the environment takes it."""
        self._taken = np.asarray(action)[None] - self._adapter.first_action
        to_environment = self._adapter.actions
        return np.asarray(action if to_environment is None else to_environment(self._taken)[0])


class Policy:
    """Chooses actions one observation at a time and remembers what it saw.

        policy = clew.load_policy("runs/cartpole")
        observation, _ = env.reset()
        action = policy(observation, start=True)       # the first observation of an episode
        observation, reward, *_ = env.step(action)
        action = policy(observation, reward=reward)    # every other one

    A policy from `load_policy` reads observations as the environment gives them: between
    environment and agent stands what stood there in training (entries that are kept, normalised
    observations, the previous action, the previous reward with its scale). What changes the
    environment itself is not in it: `frame_skip` (repeat the action, sum the rewards),
    `time_limit`, `noise` and `flicker`. `Policy(agent)` reads observations as the agent's encoder
    does.

    A policy that was trained on trials (`trial_episodes`) is told where a trial begins and, within
    it, where an episode has ended: `policy(observation, reward=reward, ended=True)` for the first
    observation of the next one.

    Args:
        agent: the network.
        wrappers: what stands between environment and agent; None if nothing does.
        greedy: take the most probable action (deterministic) instead of sampling one.
        seed: of the sampling, when not greedy.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        wrappers: TrainedWrappers | None = None,
        greedy: bool = True,
        seed: int = 0,
    ):
        self._agent = agent
        self._wrappers = wrappers
        self._greedy = greedy
        self._key = jax.random.key(seed)
        self._noise = self._key
        self._time = 0
        self.reset()

    def __call__(
        self,
        observation: Any,
        start: bool = False,
        reward: float | None = None,
        ended: bool = False,
        action_mask: Any = None,
    ) -> Any:
        """The action for this observation.

        Args:
            observation: of the kind that the agent was trained on: an array, or a dict of arrays.
            start: whether the observation opens an episode, or a trial; the memory then forgets
                first.
            reward: what the last action earned, as the environment gave it. Only agents that see
                their previous reward need it, but not at a start.
            ended: whether the last action ended an episode of a trial, and the observation opens
                the next one; for agents that were trained on trials.
            action_mask: what is allowed, as in `info["action_mask"]`. Only agents that were trained
                with masks beside their observations need it, others ignore it.

        Returns:
            What the environment takes: an int for one discrete action, otherwise an array.

        Raises:
            UserError: if the observation is none of its space, the reward or the mask is missing,
                or the mask allows nothing.
        """
        start = bool(start) or self._fresh
        x = self._read(Moment(observation, start, reward, ended, action_mask))
        self._fresh = False
        self._time = 0 if start else self._time + 1
        if self._agent.distribution.noise_time(self._time) == self._time:
            self._key, self._noise = jax.random.split(self._key)
        self._state, chosen = _choose(
            self._agent, self._state, x, jnp.asarray(start), self._noise, greedy=self._greedy
        )
        action = np.asarray(self._agent.distribution.decode(np.asarray(chosen)))
        if self._wrappers is not None:
            action = self._wrappers.act(action)
        return int(action) if action.ndim == 0 and action.dtype.kind in "iub" else action

    def reset(self) -> None:
        """Forgets everything, as before the first observation."""
        self._state = self._agent.init_state()
        self._fresh = True

    def _read(self, now: Moment) -> PyTree[np.ndarray]:
        seen = now.observation if self._wrappers is None else self._wrappers.observe(now)
        x = jax.tree.map(_numbers, seen, is_leaf=lambda x: x is None or isinstance(x, list | tuple))
        encoder = self._agent.encoder
        if isinstance(encoder, Dense):
            x = np.asarray(x, np.float32)
            if x.shape != encoder.shape:
                raise UserError(
                    f"the policy expected an observation of shape {list(encoder.shape)}, got "
                    f"{list(x.shape)}"
                )
        return x


def _numbers(value: Any) -> np.ndarray:
    """An observation, or an entry of one, as an array of finite numbers.

    Raises:
        UserError: if it is none.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # of rows of different lengths
        array = np.asarray(None)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise UserError(f"the observation must be an array of numbers, got {one_line(value)}")
    if not np.isfinite(array).all():
        at = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        raise UserError(f"the observation is not finite: {array[at]} at {list(at)}")
    return array


@eqx.filter_jit
def _choose(
    agent: Agent,
    state: PyTree[Array],
    x: PyTree[Array],
    start: Bool[Array, ""],
    key: PRNGKeyArray,
    *,
    greedy: bool,
) -> tuple[PyTree[Array], Array]:
    state, outputs = agent.step(state, x, start)
    return state, agent.distribution.choose(outputs.logits, key, greedy=greedy)
