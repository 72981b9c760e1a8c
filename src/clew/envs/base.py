"""The protocol of tasks written in JAX."""

import abc
import inspect
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt8

from clew.envs.spaces import parts_of

Observation = PyTree[Array]
"""What an agent sees: a flat float32 vector, or an element of `Environment.observation_space`."""

EnvState = PyTree[Array]
"""What an environment carries from one step to the next: arrays without a batch axis."""

Metrics = dict[str, Float[Array, ""]]
"""Numbers that describe one whole episode, by name."""


def choose(choice: Bool[Array, ""], a: PyTree[Array], b: PyTree[Array]) -> PyTree[Array]:
    """A tree with the arrays of `a` where `choice` is true, otherwise those of `b`."""
    return jax.tree.map(lambda x, y: jnp.where(choice, x, y), a, b)


def as_array(value: Any) -> np.ndarray:
    """The value as an array; an empty one if that fails, as for lists of different lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.zeros(0)


class Transition(NamedTuple):
    """The result of one environment step."""

    observation: Observation
    """The observation after the step; on the last step, the final one of the episode."""
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    """The episode ended and nothing follows: the value of what follows is zero."""
    truncated: Bool[Array, ""]
    """The episode was cut off: the value of `observation` estimates what would follow."""
    metrics: Metrics
    """One number for every name in `metric_names`; read only where the episode ended."""


class Environment(eqx.Module):
    """A task as pure functions of state, action and random key, with static settings.

    No batch axis: callers `vmap` over environments. `step` must be defined for every state that it
    can return, including the one after the episode's end (its result is then discarded).
    Observations are flat float32 vectors [observation_size] and actions are integers from 0 to
    num_actions - 1, unless the task defines otherwise in `observation_space` and `action_space`.
    States are pytrees of arrays whose shapes and dtypes never change.
    """

    observation_size: eqx.AbstractVar[int]
    """Size of an observation."""
    num_actions: eqx.AbstractVar[int]
    """Number of discrete actions; 0 where the action space is not Discrete."""
    metric_names: eqx.AbstractVar[tuple[str, ...]]
    action_names: ClassVar[tuple[str, ...]] = ()
    """The names of the actions, in order; empty if they have none."""
    boolean_metrics: ClassVar[tuple[str, ...]] = ()
    """The metrics that are 0 or 1 after every step; booleans in Gymnasium's `info`."""
    opening_is_costly: ClassVar[bool] = False
    """Whether opening an episode takes as long as a step or longer, as drawing random numbers does
    (and shuffling cards far longer); `AutoReset` then opens episodes only after steps in which an
    episode ended in some environment."""

    @property
    def observation_space(self) -> Space:
        """The space of observations: a Box, Discrete, MultiDiscrete, MultiBinary or Dict of
        them."""
        return Box(-np.inf, np.inf, (self.observation_size,), np.float32)

    @property
    def action_space(self) -> Space:
        """The space of actions: Discrete, MultiDiscrete, MultiBinary or a Box."""
        return Discrete(self.num_actions)

    @property
    def about(self) -> str:
        """The task in one line, for lists of tasks: by default the first line of its docstring."""
        return (inspect.getdoc(type(self)) or "").partition("\n")[0]

    @property
    def shortest(self) -> int:
        """The minimum number of steps of an episode; 1, the default, where more are not certain."""
        return 1

    @abc.abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        """Opens an episode: its state and its first observation."""

    def next_episode(self, state: EnvState, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        """Opens the episode after the one that ended in `state`: by default a new one, as `reset`.

        A task may override this if its episodes follow a fixed order: `state` counts them. `reset`
        then opens the first one.
        """
        return self.reset(key)

    def next_in_trial(
        self, first: tuple[EnvState, Observation], key: Key[Array, ""]
    ) -> tuple[EnvState, Observation]:
        """Opens another episode of the trial whose first one opened with `first`.

        By default the same episode opens again: everything that was drawn stays, and only the draws
        of `step` differ. A task may instead keep the draws of `first` that the agent has to find
        out within a trial, and draw the others anew in every episode.

        Args:
            first: the result of `reset` or `next_episode` at the trial's beginning.
            key: for what is drawn anew.
        """
        return first

    def trial_goes_on(self, state: EnvState) -> Bool[Array, ""]:
        """Whether the last step ended an episode of a trial, and opened its next one.

        For wrappers that show it to the agent. Without `clew.envs.trials.Trials` there are no
        trials.
        """
        return jnp.zeros((), jnp.bool_)

    @abc.abstractmethod
    def step(
        self, state: EnvState, action: Array, key: Key[Array, ""]
    ) -> tuple[EnvState, Transition]:
        """Takes one action."""

    def action_mask(self, state: EnvState) -> Bool[Array, " n"] | None:
        """True for the actions that are allowed in a state; None, the default, allows all always.

        There is one boolean for every action of a Discrete; for a MultiDiscrete, those of all
        choices are concatenated. At least one action of each choice must be allowed, except where
        the episode has ended. A policy never takes an action that is not allowed. The mask is not
        in the observation of `reset` and `step`: `AutoReset` adds it.
        """
        return None

    @property
    def masks_actions(self) -> bool:
        """Whether `action_mask` gives masks."""
        if type(self).action_mask is Environment.action_mask:
            return False
        key = jax.eval_shape(jax.random.key, 0)
        return jax.eval_shape(lambda key: self.action_mask(self.reset(key)[0]), key) is not None

    def draw(self, rng: np.random.Generator, number: int) -> dict[str, Any]:
        """Draws the random part of an episode with NumPy, as arguments of `reset_to`.

        The Gymnasium form opens its episodes with the draw, reports it in `info`, and lets
        `reset(options=...)` force it. By default the draw is empty and `reset` draws episodes.

        Args:
            rng: Gymnasium's generator, which the user seeds.
            number: number of the episode since the seed, for tasks that follow a fixed stream.
        """
        return {}

    def force(self, drawn: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """The draw, with some values replaced by a user's.

        Raises:
            UserError: impossible values.
        """
        return drawn | given

    def reset_to(self, *args: Any, **kwargs: Any) -> tuple[EnvState, Observation]:
        """Opens the episode that `draw` describes."""
        raise NotImplementedError(f"{type(self).__name__} has no named draws to reset to")

    def outcomes(self, state: EnvState, key: Key[Array, ""]) -> tuple[EnvState, Transition] | None:
        """States and transitions [actions, time] of a whole episode from its opening state.

        None if actions change the episode.
        """
        return None

    def remembered(self, state: EnvState) -> dict[str, Int[Array, ""]]:
        """What has to be remembered in an episode, as integers by name; most important first.

        `clew inspect` looks for these values in the memory's state. They are taken from the state
        that opens an episode. Empty by default.
        """
        return {}

    def render_image(
        self, state: PyTree[np.ndarray], observation: Float[np.ndarray, " n"]
    ) -> UInt8[np.ndarray, "height width 3"] | None:
        """A picture of one step for humans, for `clew watch`; None if the task has none.

        Runs outside compiled programs. The picture may show more than the agent sees.

        Args:
            state: before the step's action, in NumPy.
            observation: the agent's observation at that time.
        """
        return None

    def render_text(
        self, state: PyTree[np.ndarray], observation: Float[np.ndarray, " n"]
    ) -> str | None:
        """The same as lines of text; None if the task has none."""
        return None


class OpenLoop(Environment):
    """A task in which actions change neither the observations nor the end of the episode.

    Actions only decide the rewards: all observations of an episode are known when it opens, and a
    memory may read them in one pass. No episode is ever truncated.
    """

    @property
    @abc.abstractmethod
    def longest(self) -> int:
        """Steps of the longest episode."""

    @property
    def shortest(self) -> int:
        return self.longest

    @abc.abstractmethod
    def ahead(self, state: EnvState, count: int) -> EnvState:
        """The states before each of the next `count` steps, along a new first axis.

        States after the episode's end may be anything for which `step` is defined.
        """

    def outcomes(self, state: EnvState, key: Key[Array, ""]) -> tuple[EnvState, Transition]:
        before = self.ahead(state, self.longest)
        keys = jax.vmap(lambda time: jax.random.fold_in(key, time))(jnp.arange(self.longest))
        after = jax.vmap(self.step, in_axes=(0, None, 0))
        return jax.vmap(after, in_axes=(None, 0, None))(before, jnp.arange(self.num_actions), keys)


class TimedOpenLoop(OpenLoop):
    """A task whose states within an episode differ only in their `time`."""

    def ahead(self, state: Any, count: int) -> Any:
        times = jnp.arange(count, dtype=jnp.int32)
        return jax.vmap(lambda passed: state._replace(time=state.time + passed))(times)


class Wrapper(Environment):
    """A JAX task around another one that changes its states, observations or rewards."""

    env: Environment
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    metric_names: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, env: Environment):
        self.env = env
        self.num_actions, self.metric_names = env.num_actions, env.metric_names
        parts = parts_of(self.observation_space)
        self.observation_size = sum(int(np.prod(part.shape or (), dtype=int)) for part in parts)

    @abc.abstractmethod
    def opened(self, state: EnvState, observation: Observation) -> tuple[EnvState, Observation]:
        """The wrapper's state and observation when the task opens an episode with these."""

    @abc.abstractmethod
    def stepped(
        self,
        before: EnvState,
        state: EnvState,
        transition: Transition,
        action: Array,
        key: Key[Array, ""],
    ) -> tuple[EnvState, Transition]:
        """The wrapper's state and transition after a step.

        Args:
            before: the wrapper's state before the step.
            state: the task's state after it.
            key: the key of the task's step; `fold_in` derives another one from it.
        """

    def task_state(self, state: Any) -> Any:
        """The task's state within the wrapper's, by default the same."""
        return state

    def task_observation(self, observation: Any) -> Any:
        """The task's observation within the wrapper's, by default the same; None if it is lost."""
        return observation

    @property
    def observation_space(self) -> Space:
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        return self.env.action_space

    @property
    def shortest(self) -> int:
        return self.env.shortest

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the actions."""
        return self.env.action_names

    @property
    def opening_is_costly(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As in the task."""
        return self.env.opening_is_costly

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        return self.opened(*self.env.reset(key))

    def next_episode(self, state: EnvState, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        return self.opened(*self.env.next_episode(self.task_state(state), key))

    def step(
        self, state: EnvState, action: Array, key: Key[Array, ""]
    ) -> tuple[EnvState, Transition]:
        after, transition = self.env.step(self.task_state(state), action, key)
        return self.stepped(state, after, transition, action, key)

    def trial_goes_on(self, state: EnvState) -> Bool[Array, ""]:
        return self.env.trial_goes_on(self.task_state(state))

    def remembered(self, state: EnvState) -> dict[str, Int[Array, ""]]:
        return self.env.remembered(self.task_state(state))

    def action_mask(self, state: EnvState) -> Bool[Array, " n"] | None:
        return self.env.action_mask(self.task_state(state))

    @property
    def masks_actions(self) -> bool:
        return self.env.masks_actions

    def render_image(self, state: Any, observation: Any) -> Any:
        """The task's own picture of a step, if its observation is known."""
        seen = self.task_observation(observation)
        return None if seen is None else self.env.render_image(self.task_state(state), seen)

    def render_text(self, state: Any, observation: Any) -> str | None:
        seen = self.task_observation(observation)
        return None if seen is None else self.env.render_text(self.task_state(state), seen)


class ObservationWrapper(Wrapper):
    """A wrapper that changes observations alone."""

    def __init__(self, env: Environment):
        super().__init__(env)

    @abc.abstractmethod
    def shown(self, state: EnvState, observation: Observation) -> Observation:
        """What is seen in place of the task's observation, with the task's state."""

    def opened(self, state: EnvState, observation: Observation) -> tuple[EnvState, Observation]:
        return state, self.shown(state, observation)

    def stepped(
        self, before: EnvState, state: EnvState, transition: Transition, action: Array, key: Array
    ) -> tuple[EnvState, Transition]:
        seen = self.shown(state, transition.observation)
        return state, transition._replace(observation=seen)
