"""A trained agent as a plain object that keeps its memory's state, for deployment."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from clew.agents.distributions import Distribution
from clew.agents.encoders import Dense
from clew.agents.heads import named_preferences
from clew.agents.network import Agent
from clew.agents.trajectory import empty_memories
from clew.bridges.gymnasium.masks import ActionMasks
from clew.bridges.gymnasium.spaces import ActionAdapter, ObservationAdapter, mask_of_info
from clew.bridges.gymnasium.wrappers import VectorWrappers
from clew.envs.spaces import MASK, PREVIOUS_REWARD, entries_named, join_mask, take_entry
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError, one_line, require_at_least


class PolicyAdapter(NamedTuple):
    """The conversions between an environment and its agent."""

    observations: ObservationAdapter
    """From the environment's observations to those that the wrappers take."""
    actions: ActionAdapter | None
    """From the agent's actions to the environment's; None if they are the same."""
    action_space: spaces.Space
    """The agent's actions."""
    own_action_space: spaces.Space
    """The environment's actions."""
    wrappers: WrapperConfig
    statistics: dict[str, Any]
    """The wrappers' statistics from training, see `VectorWrappers.state`."""

    @property
    def masks(self) -> ActionMasks | None:
        """The place of the action mask; None if there is none."""
        return ActionMasks.of(self.wrappers, self.action_space)

    @property
    def unmasked(self) -> spaces.Space:
        """The observations without the action mask, before the wrappers."""
        masks = self.masks
        return self.observations.space if masks is None else masks.rest(self.observations.space)

    @property
    def first_action(self) -> np.ndarray | int:
        """The number of the agent's first discrete action, or of the first of each of several."""
        space = self.action_space
        choices = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        return np.asarray(space.start) if choices else 0

    @property
    def action_names(self) -> tuple[str, ...]:
        """The environment's names for the actions of a Discrete that does not start at 0."""
        space = self.own_action_space
        if not isinstance(space, spaces.Discrete) or space.start == 0:
            return ()
        return tuple(str(space.start + action) for action in range(int(space.n)))

    def without(self, names: Collection[str]) -> "PolicyAdapter":
        """The adapter without entries that only a critic reads, `critic_only` of a run."""
        if not names:
            return self

        def rest(parts: Any) -> dict[str, Any]:
            hidden = entries_named(parts, names)
            return {name: part for name, part in parts.items() if name not in hidden}

        seen, statistics = self.observations, self.statistics
        if isinstance(seen.space, spaces.Dict):
            space = spaces.Dict(rest(seen.space))
            leaves = tuple(leaf for leaf in seen.leaves if leaf.name in space.spaces)
            seen = replace(seen, leaves=leaves, space=space)
        wrappers = replace(self.wrappers, whole=False)
        if "observation" in statistics:
            moments = rest(statistics["observation"])
            wrappers = replace(wrappers, normalise_observations=bool(moments))
            others = {name: part for name, part in statistics.items() if name != "observation"}
            statistics = others | ({"observation": moments} if moments else {})
        return self._replace(observations=seen, wrappers=wrappers, statistics=statistics)

    def taken(self, distribution: Distribution, kept: np.ndarray) -> np.ndarray:
        """Actions [T, ...] as the environment takes them, from those that a distribution keeps."""
        actions = np.asarray(distribution.decode(kept))
        return actions if self.actions is None else self.actions(actions)


class Moment(NamedTuple):
    """An observation before an action as the environment gives it, with the preceding reward."""

    observation: Any
    start: bool
    """Whether it opens an episode."""
    reward: float | None
    """Reward of the previous action; None at a start."""
    ended: bool = False
    """Whether the previous action ended an episode of a trial."""
    action_mask: Any = None
    """The allowed actions, if the environment gives them beside its observation; else None."""

    def given_to(self, policy: Callable[..., Any]) -> Any:
        """The action of a policy for it."""
        how: dict[str, Any] = {"ended": True} if self.ended else {}
        how |= {} if self.action_mask is None else {"action_mask": self.action_mask}
        return policy(self.observation, start=self.start, reward=self.reward, **how)


class PolicyState(NamedTuple):
    """The state of a policy between two calls, as NumPy arrays.

    A policy for N environments has these as first axis.
    """

    memory: PyTree[np.ndarray]
    """The memory's state, in the form of `Agent.init_state`."""
    action: np.ndarray
    """The last action, in the form that the distribution keeps; zeros before the first."""
    fresh: np.ndarray
    """Whether the next observation opens an episode even without `start`."""
    time: np.ndarray
    """Steps since the episode began, which determine when held noise is drawn anew."""
    key: np.ndarray
    """The data of the random key for later noise."""
    noise: np.ndarray
    """The data of the key with which the last action was sampled."""


class TrainedWrappers:
    """The wrappers between environment and agent in training, as functions.

    Their statistics are those of the checkpoint and stay fixed.

    Args:
        adapter: of the task.
        read: gives the array [B, ...] of each leaf of an observation, or raises a `UserError` for
            one that is not of the task.
        num_envs: environments side by side, B; None for a single one, whose observations and masks
            have no axis for it.
    """

    def __init__(
        self,
        adapter: PolicyAdapter,
        read: Callable[[Any], list[np.ndarray]],
        num_envs: int | None = None,
    ):
        self._adapter, self._masks, self._read = adapter, adapter.masks, read
        self._num_envs = num_envs
        self._wrappers = VectorWrappers(
            adapter.wrappers, adapter.unmasked, adapter.action_space, num_envs or 1, frozen=True
        )
        self._wrappers.restore(adapter.statistics)

    def observe(
        self,
        observation: Any,
        actions: np.ndarray,
        starts: np.ndarray,
        rewards: np.ndarray | None = None,
        ended: np.ndarray | None = None,
        action_mask: Any = None,
    ) -> PyTree[np.ndarray]:
        """The agent's input [B, ...], from an observation and the previous action and reward.

        Args:
            observation: as the environment gives it.
            actions: the agent's previous actions [B, ...]; ignored at a start.
            starts: [B], which observations open an episode.
            rewards: [B], rewards of these actions; None if unknown.
            ended: [B], which actions ended an episode of a trial; None for none of them.
            action_mask: the allowed actions, if they are given beside the observation.

        Raises:
            UserError: if the observation is not in its space, the reward or the action mask is
                missing, or the mask allows nothing.
        """
        read = self._read(observation)
        shown = self._adapter.wrappers.shows_previous
        if PREVIOUS_REWARD in shown and rewards is None and not starts.all():
            raise UserError(
                "this agent sees its previous reward: call policy(observation, reward=...), or "
                "start=True if the observation opens an episode"
            )
        given = np.where(starts, 0.0, 0.0 if rewards is None else rewards).astype(np.float32)
        earned = self._wrappers.reward(given, ~starts, np.zeros_like(starts))
        observations = self._adapter.observations
        raw = observations.named(
            [leaf.adapt(x) for leaf, x in zip(observations.leaves, read, strict=True)]
        )
        raw, mask = self._split(raw, action_mask)
        taken = actions - self._adapter.first_action
        seen = self._wrappers.observe(raw, taken, earned, starts, ended)
        seen = observations.nested(seen)
        return seen if mask is None else join_mask(seen, mask != 0)

    def _split(self, raw: Any, action_mask: Any) -> tuple[Any, np.ndarray | None]:
        """The observation without the action masks, and the masks [B, n], if there are any."""
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
            mask = self._rows(action_mask, self._masks.size)
        wrong, text = self._masks.wrong(mask)
        if text:
            where = "" if self._num_envs is None else f" for environment {np.argmax(wrong)}"
            raise UserError(f"the policy got {text}{where}")
        return raw, mask

    def _rows(self, action_mask: Any, size: int) -> np.ndarray:
        """The masks [B, n] in the form of `info`."""
        rows = [action_mask] if self._num_envs is None else action_mask
        if np.ndim(rows) == 0 or len(rows) != (self._num_envs or 1):
            raise UserError(
                f"action_mask has shape {list(np.shape(rows))}, expected {self._num_envs} masks, "
                "one for each environment"
            )
        return np.stack([mask_of_info({MASK: row}, size, False) for row in rows])

    def act(self, actions: np.ndarray) -> np.ndarray:
        """The agent's actions [B, ...] as the environments take them."""
        to_environment = self._adapter.actions
        if to_environment is None:
            return actions
        return to_environment(actions - self._adapter.first_action)


class Policy:
    """Chooses actions one observation at a time, and keeps its memory's state between calls.

        policy = clew.load_policy("runs/cartpole")
        observation, _ = env.reset()
        action = policy(observation, start=True)       # the first observation of an episode
        observation, reward, *_ = env.step(action)
        action = policy(observation, reward=reward)    # every other one

    A policy from `load_policy` takes observations as the environment gives them and applies the
    wrappers of training (kept entries, normalised observations, the previous action, the scaled
    previous reward). Wrappers that change the environment itself are not included: `frame_skip`
    (repeat the action, sum the rewards), `time_limit`, `noise` and `flicker`. `Policy(agent)` takes
    observations in the form of the agent's encoder.

    A policy that was trained on trials (`trial_episodes`) needs `start` where a trial begins and
    `ended` where an episode within it has ended: `policy(observation, reward=reward, ended=True)`
    for the first observation of the next episode.

    With `num_envs` it plays that many environments side by side in one compiled call, each with its
    own memory state; every argument and the actions then have them as first axis.

    Args:
        agent: the network.
        wrappers: between environment and agent; None for no wrappers.
        greedy: take the most probable action (deterministic) instead of sampling one.
        seed: of the sampling, if not greedy. Environment i acts like a policy for one environment
            with seed + i.
        num_envs: environments side by side; None for a single one, without an axis for it.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        wrappers: TrainedWrappers | None = None,
        greedy: bool = True,
        seed: int = 0,
        num_envs: int | None = None,
    ):
        if num_envs is not None:
            require_at_least("num_envs", num_envs, 1)
        self._agent = agent
        self._wrappers = wrappers
        self._greedy = greedy
        self._num_envs = num_envs
        count = num_envs or 1
        keys = np.stack([_data(jax.random.key(seed + index)) for index in range(count)])
        distribution = agent.distribution
        self._state = PolicyState(
            memory=empty_memories(agent, count),
            action=np.zeros((count, *distribution.action_shape), distribution.action_dtype),
            fresh=np.ones(count, bool),
            time=np.zeros(count, np.int32),
            key=keys,
            noise=keys,
        )
        self._outputs: dict[str, Array] | None = None

    def __call__(
        self,
        observation: Any,
        start: Any = False,
        reward: Any = None,
        ended: Any = False,
        action_mask: Any = None,
    ) -> Any:
        """The action for this observation.

        Args:
            observation: as in training: an array, or a dict of arrays.
            start: whether the observation opens an episode or a trial; the memory is then reset
                first. With `num_envs` a flag for each environment, or one for all.
            reward: of the last action, as the environment gave it. Only agents that observe their
                previous reward need it, and not at a start.
            ended: whether the last action ended an episode of a trial, so that the observation
                opens the next one; for agents that were trained on trials.
            action_mask: the allowed actions, as in `info["action_mask"]`. Only agents that were
                trained with masks beside their observations need it; others ignore it.

        Returns:
            The environment's action: an int for one discrete action, otherwise an array; with
            `num_envs` always an array, [N] for discrete actions.

        Raises:
            UserError: if the observation is not in its space, the reward or the mask is missing, or
                the mask allows nothing. The state is then unchanged.
        """
        starts = self._each("start", start).astype(bool) | self._state.fresh
        rewards = None if reward is None else self._each("reward", reward)
        ends = self._each("ended", ended).astype(bool)
        x = self._read(observation, starts, rewards, ends, action_mask)
        state, chosen, self._outputs = _choose(
            self._agent, self._state, x, jnp.asarray(starts), greedy=self._greedy
        )
        self._state = state._replace(action=np.asarray(chosen), fresh=np.zeros_like(starts))
        actions = self._decoded()
        if self._wrappers is not None:
            actions = self._wrappers.act(actions)
        if self._num_envs is not None:
            return actions
        action = np.asarray(actions[0])
        return int(action) if action.ndim == 0 and action.dtype.kind in "iub" else action

    @property
    def outputs(self) -> dict[str, np.ndarray] | None:
        """The network's outputs for the last observation, by name; None before the first.

        They are the parameters of the distribution over actions (`logits`, or `mean` and `log_std`)
        or `action_values`, as in an export, and `value`, unless that needs entries which only the
        critic reads and which are missing. The first axis is the environments, also if there is
        one.
        """
        if self._outputs is None:
            return None
        return {name: np.asarray(x) for name, x in self._outputs.items()}

    @property
    def state(self) -> PolicyState:
        """A copy of everything that the policy keeps between two calls.

        Another policy of the same run that gets this state continues like this one bit for bit,
        samples included; with another `key` its samples differ.
        """
        return jax.tree.map(lambda leaf: np.array(self._row(leaf)), self._state)

    @state.setter
    def state(self, state: PolicyState) -> None:
        """Continues from a state.

        Raises:
            UserError: if it is not the state of such a policy or has NaN, naming what does not fit.
        """
        own, given = _forms(self.state), _forms(state)
        for name in own | given:
            here, theirs = (forms.get(name, "missing") for forms in (own, given))
            if here != theirs:
                raise UserError(f"the state does not fit: {name} is {theirs}, expected {here}")
        _require_no_nan(state)
        alone = self._num_envs is None
        leaves = [
            np.array(leaf)[None] if alone else np.array(leaf) for leaf in jax.tree.leaves(state)
        ]
        self._state = jax.tree.unflatten(jax.tree.structure(self._state), leaves)

    def reset(self, envs: Any = ...) -> None:
        """Resets the memory, as before the first observation; sampling continues with new noise.

        Args:
            envs: the environments to reset, if there are several: an index, a list of indices, or a
                flag for each; by default all.

        Raises:
            UserError: if there are no such environments.
        """
        which = np.zeros_like(self._state.fresh)
        try:
            which[envs] = True
        except (IndexError, TypeError) as error:
            raise UserError(
                f"reset of {one_line(envs)}, expected some of {len(which)} environments"
            ) from error
        state = self._state
        old = state.memory, state.action
        new = empty_memories(self._agent, len(which)), np.zeros_like(state.action)

        def forgotten(old: Any, new: Any) -> np.ndarray:
            return np.where(which.reshape(-1, *[1] * (np.ndim(old) - 1)), new, old)

        memory, action = jax.tree.map(forgotten, old, new)
        self._state = state._replace(memory=memory, action=action, fresh=state.fresh | which)

    def _row(self, x: Any) -> Any:
        """Removes the axis of environments if there is only one."""
        return x[0] if self._num_envs is None else x

    def _decoded(self) -> np.ndarray:
        """The last actions [B, ...] as the distribution passes them to an environment."""
        return np.asarray(self._agent.distribution.decode(self._state.action))

    def _each(self, name: str, value: Any) -> np.ndarray:
        """A number or flag for every environment."""
        count = len(self._state.fresh)
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or (array.size != 1 and array.shape != (count,)):
            several = f"{count} values, one for each environment"
            wanted = "one value" if self._num_envs is None else several
            raise UserError(f"{name} must be {wanted}, got {one_line(value)}")
        return np.broadcast_to(array.reshape(-1), (count,))

    def _read(
        self,
        observation: Any,
        starts: np.ndarray,
        rewards: np.ndarray | None,
        ended: np.ndarray,
        action_mask: Any,
    ) -> PyTree[np.ndarray]:
        seen = observation
        if self._wrappers is not None:
            seen = self._wrappers.observe(
                observation, self._decoded(), starts, rewards, ended, action_mask
            )
        x = jax.tree.map(_numbers, seen, is_leaf=lambda x: x is None or isinstance(x, list | tuple))
        if self._wrappers is None and self._num_envs is None:
            x = jax.tree.map(lambda leaf: leaf[None], x)
        encoder = self._agent.encoder
        if isinstance(encoder, Dense):
            x = np.asarray(x, np.float32)
        for leaf in jax.tree.leaves(x):
            shape = encoder.shape if isinstance(encoder, Dense) else leaf.shape[1:]
            wanted = (len(starts), *shape)
            if leaf.shape != wanted:
                shown = slice(self._num_envs is None, None)
                raise UserError(
                    f"the policy expected an observation of shape {list(wanted[shown])}, got "
                    f"{list(leaf.shape[shown])}"
                )
        return x


def _data(key: PRNGKeyArray) -> Array:
    return jax.random.key_data(key)


def _forms(tree: Any) -> dict[str, str]:
    """Type and shape of each array of a tree, by its path."""
    named = jax.tree_util.tree_leaves_with_path(tree)
    arrays = {  # NumPy has no random keys
        jax.tree_util.keystr(path): leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        for path, leaf in named
    }
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


def _require_no_nan(state: PolicyState) -> None:
    """Refuses a state with NaN in it, which no later observation would remove from most memories.

    Infinity may be what a memory begins with, such as that of a largest number so far.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        array = np.asarray(leaf)
        if jnp.issubdtype(array.dtype, np.inexact) and np.isnan(array).any():
            at = np.argwhere(np.isnan(array))[0].tolist()
            name = jax.tree_util.keystr(path)
            raise UserError(f"the state has NaN: {name} at {at}, expected numbers")


def _numbers(value: Any) -> np.ndarray:
    """An observation, or an entry of one, as an array of finite numbers.

    Raises:
        UserError: if it is not.
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
    state: PolicyState,
    x: PyTree[Array],
    starts: Bool[Array, " batch"],
    *,
    greedy: bool,
) -> tuple[PolicyState, Array, dict[str, Array]]:
    """The state after observations [B, ...], with unchanged `action` and `fresh`; the actions; and
    the network's outputs by name.
    """
    distribution = agent.distribution

    def one(
        state: PolicyState, x: PyTree[Array], start: Array
    ) -> tuple[PolicyState, Array, dict[str, Array]]:
        memory, outputs = agent.step(state.memory, x, start)
        time = jnp.where(start, 0, state.time + 1)
        anew = distribution.noise_time(time) == time
        own = jax.random.wrap_key_data(jnp.asarray(state.key))
        later, now = map(_data, jax.random.split(own))
        key, noise = jnp.where(anew, later, state.key), jnp.where(anew, now, state.noise)
        drawn = jax.random.wrap_key_data(noise)
        after = state._replace(memory=memory, time=time, key=key, noise=noise)
        action = distribution.choose(outputs.logits, drawn, greedy=greedy)
        shown = named_preferences(distribution, outputs, agent.read_mask(x))
        value = {} if outputs.value is None else {"value": outputs.value}
        return after, action, shown | value

    return jax.vmap(one)(state, x, starts)
