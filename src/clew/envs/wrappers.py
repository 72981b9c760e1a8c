"""Wrappers between an environment and the agent: their settings, and those of JAX tasks.

The wrappers of Gymnasium environments, which take all of the settings, are in
`clew.bridges.gymnasium.wrappers`; a JAX task takes those in `FOR_JAX`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Key

from clew.envs.base import (
    Environment,
    EnvState,
    Observation,
    ObservationWrapper,
    Transition,
    Wrapper,
)
from clew.envs.spaces import (
    BARE,
    PREVIOUS_ACTION,
    PREVIOUS_ENDED,
    PREVIOUS_REWARD,
    WHOLE,
    choice_sizes,
    encoded_actions,
    entries_named,
    is_float_box,
    kept,
    named_entries,
    named_spaces,
    parts_of,
    space_without,
    take_entry,
    whole_entries,
    without_entries,
)
from clew.envs.trials import SeparateEpisodes, Trials
from clew.errors import Settings, UserError, require_at_least, require_fraction, require_rate
from clew.names import METRICS

DISTURBANCE = 0x6E6F6973
"""Combined with keys and seeds for the random numbers of noise and flicker."""
INFO = "info"
"""The value of `action_mask` for Gymnasium's `info`."""
FOR_JAX = (
    "trial_episodes",
    "trial_memory",
    "action_mask",
    "show_action_mask",
    "keep",
    "noise",
    "flicker",
    "whole",
    "reward_scale",
    "reward_clip",
    "previous",
    "previous_action",
)
"""The settings of `WrapperConfig` that JAX tasks take."""

NEEDED = {
    "observation_clip": "normalise_observations",
    "reward_gamma": "normalise_rewards",
    "video_folder": "video_every",
}
"""Settings of `WrapperConfig` that have no effect without another one."""


@dataclass(frozen=True)
class WrapperConfig(Settings):
    """Settings of the wrappers between an environment and the agent; by default there are none.

    In this order: frame_skip, time_limit, trials and video around each environment; then, for all
    of them together, action_mask, keep, noise, normalise_observations, flicker, whole, previous
    and previous_action on observations, and normalise_rewards, reward_scale, reward_clip on
    rewards. The "return" and "length" in a step's metrics count the environment's own rewards and
    the agent's steps.
    """

    frame_skip: int = 1
    """How many times every action is repeated; the rewards are summed. The repetition stops at the
    end of an episode, and when an action mask no longer allows the action."""
    time_limit: int | None = None
    """Truncate episodes after this many of the agent's steps, in addition to the environment's own
    limits; None for no further limit."""
    trial_episodes: int = 1
    """Number of episodes in a trial (RL^2), which share what the task drew at its beginning and
    through which the agent keeps its memory; the agent sees its previous action and reward, and
    whether an episode has just ended. For the agent a trial is one episode. 1 for no trials."""
    trial_memory: bool = True
    """False is the control: the same trials, with a memory that is reset in each episode."""
    keep: tuple[int, ...] | None = None
    """Indices of the entries of a vector observation that the agent sees, in this order; None for
    all. (0, 2) hides CartPole's velocities."""
    noise: float = 0.0
    """Standard deviation of normal noise on every entry of float observations (Boxes, not pictures
    or categories), in their units, drawn at each step and not clipped to the space's limits. It
    belongs to the task: evaluation has it too, and a loaded or exported policy adds none."""
    flicker: float = 0.0
    """Probability that an observation is blank, all 0, independently at each step (Hausknecht and
    Stone, 2015, arXiv 1507.06527: 0.5). It belongs to the task, like noise."""
    whole: bool = False
    """Add the observation as it is before keep, noise and flicker, for a critic that sees more than
    the actor (`critic_only` of the network): the observation becomes a dict with "observation" and
    "whole", or with the environment's own names and "whole.NAME" for each."""
    normalise_observations: bool = False
    """Shift and scale every entry of float observations to mean 0 and standard deviation 1 over all
    observations so far, of all environments. Frozen in evaluation; kept in checkpoints."""
    observation_clip: float = 10.0
    """Clip normalised observations at this many standard deviations."""
    normalise_rewards: bool = False
    """Divide rewards by the root mean square of the discounted return so far, R_t = r_t +
    reward_gamma R_{t-1}. Frozen in evaluation; kept in checkpoints."""
    reward_gamma: float = 0.99
    """Discount of the return by which normalise_rewards divides; usually the agent's."""
    reward_scale: float = 1.0
    """Multiply rewards by this, after normalise_rewards."""
    reward_clip: float | None = None
    """Clip rewards at plus and minus this, after everything else; None for no limit."""
    previous: bool = False
    """Show the agent its previous action and reward: the observation becomes a dict with
    "observation" (or the environment's own names), "previous_action" (one-hot; a Box as it is) and
    "previous_reward" (as the agent learns from it); both 0 at an episode's start. Trials always
    have them, and also "previous_ended": 1 where an episode of the trial has just ended, otherwise
    0."""
    previous_action: bool = False
    """Show the agent its previous action as `previous` does, but not the reward, which may reveal
    whether an answer was right."""
    action_mask: str | None = None
    """Where an environment gives its action mask: info, for info["action_mask"], or the name of an
    entry of its Dict observation, which the agent then sees only as a mask; None for no mask. A JAX
    task that masks its actions needs no setting."""
    show_action_mask: bool = False
    """Let the agent's encoder read the action mask as well, as an additional entry."""
    metrics: tuple[str, ...] = ()
    """Keys of numbers in the `info` of an episode's last step that are reported besides its return
    and length, for example success."""
    video_every: int = 0
    """Film every n-th episode of the first environment as a GIF; 0 for none."""
    video_folder: str = "videos"
    """The folder for the films."""

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        return {name: value for name, value in given.items() if value != usual[name]}

    @property
    def trials(self) -> bool:
        """Whether the agent keeps its memory across the episodes of a trial."""
        return self.trial_episodes > 1 and self.trial_memory

    @property
    def shows_previous(self) -> tuple[str, ...]:
        """The entries in which the agent sees its previous step, if any."""
        if self.trials:
            return PREVIOUS_ACTION, PREVIOUS_REWARD, PREVIOUS_ENDED
        if self.previous:
            return PREVIOUS_ACTION, PREVIOUS_REWARD
        return (PREVIOUS_ACTION,) if self.previous_action else ()

    def validate(self) -> None:
        require_at_least("frame_skip", self.frame_skip, 1)
        require_at_least("video_every", self.video_every, 0)
        require_at_least("trial_episodes", self.trial_episodes, 1)
        if not self.trial_memory and self.trial_episodes == 1:
            raise UserError("trial_memory=False needs trials: give trial_episodes, 2 or more")
        if self.time_limit is not None:
            require_at_least("time_limit", self.time_limit, 1)
        require_rate("noise", self.noise)
        require_fraction("flicker", self.flicker)
        if self.whole and self.keep is None and not (self.noise or self.flicker):
            raise UserError("whole adds nothing without keep, noise or flicker")
        require_rate("observation_clip", self.observation_clip, positive=True)
        require_rate("reward_scale", self.reward_scale, positive=True)
        require_fraction("reward_gamma", self.reward_gamma)
        if self.reward_clip is not None:
            require_rate("reward_clip", self.reward_clip, positive=True)
        if self.keep is not None:
            for index in self.keep:
                require_at_least("an index of keep", index, 0)
            if not self.keep or len(set(self.keep)) < len(self.keep):
                raise UserError(f"keep must name different entries, at least one, got {self.keep}")
        taken = [name for name in self.metrics if name in METRICS or not name]
        if taken or len(set(self.metrics)) < len(self.metrics):
            raise UserError(
                f"metrics must name different numbers of info, not {' or '.join(METRICS)}, which "
                f"are reported in any case; got {self.metrics}"
            )
        if self.action_mask == "":
            raise UserError("action_mask must be info or the name of an entry, got an empty string")
        if self.video_every and not self.video_folder:
            raise UserError("video_every needs a video_folder, got an empty string")

    def require_no_single(self, name: str) -> None:
        """Refuses wrappers of single environments for a vector environment.

        Raises:
            UserError: if frame_skip, time_limit, trial_episodes or video_every is set.
        """
        wanted = {"frame_skip": self.frame_skip > 1, "time_limit": self.time_limit is not None}
        wanted |= {"trial_episodes": self.trial_episodes > 1, "video_every": self.video_every > 0}
        for setting, asked in wanted.items():
            if asked:
                raise UserError(
                    f"{setting} wraps single environments, but {name} is a vector environment: "
                    "apply it inside"
                )


def observed(space: spaces.Space, actions: spaces.Space, config: WrapperConfig) -> spaces.Space:
    """The space of the agent's observations through the wrappers.

    Raises:
        UserError: if keep, noise, normalise_observations or flicker does not fit the observation,
            or a name is taken.
    """
    whole, space = space, kept(space, config.keep)
    if config.noise:
        space = with_noise(space)
    if config.normalise_observations:
        clip = config.observation_clip
        space, whole = (
            _with_floats("normalise_observations", part, clip) for part in (space, whole)
        )
    if config.flicker:
        space = with_blanks(space)
    if config.whole:
        space = with_whole(space, whole)
    if not config.shows_previous:
        return space
    return with_previous(space, actions, config.shows_previous, config.reward_clip)


def with_noise(space: spaces.Space) -> spaces.Space:
    """The space of observations under noise: float entries have no limits.

    Raises:
        UserError: there are none.
    """
    return _with_floats("noise", space, np.inf)


def _with_floats(setting: str, space: spaces.Space, limit: float) -> spaces.Space:
    """The space with its float Boxes limited to plus and minus this limit."""
    if not any(map(is_float_box, parts_of(space))):
        raise UserError(f"{setting} finds no float Box in {space}")
    return _changed(
        space, lambda _, part: _box(part, -limit, limit) if is_float_box(part) else part
    )


def with_blanks(space: spaces.Space) -> spaces.Space:
    """The space of observations that may be blank.

    Raises:
        UserError: if a part of it is not a Box: category 0 would look like any other category.
    """

    def blank(name: str, part: spaces.Space) -> spaces.Space:
        if not isinstance(part, spaces.Box):
            raise UserError(f"flicker blanks Boxes, and {name} is observed as {part}")
        return _box(part, np.minimum(part.low, 0), np.maximum(part.high, 0))

    return _changed(space, blank)


def with_whole(space: spaces.Space, whole: spaces.Space) -> spaces.Dict:
    """The space of observations beside the whole ones.

    Raises:
        UserError: if a name is taken.
    """
    named, added = named_spaces(space), whole_entries(whole)
    if taken := named.keys() & added.keys():
        raise UserError(f"whole adds {min(taken)!r}, which the environment already observes")
    return spaces.Dict({**named, **added})


def _changed(
    space: spaces.Space, change: Callable[[str, Any], spaces.Space], name: str = BARE
) -> spaces.Space:
    """The space with each part changed by name, including nested Dicts."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _changed(part, change, key) for key, part in space.items()})
    return change(name, space)


def _box(box: spaces.Box, low: Any, high: Any) -> spaces.Box:
    """The Box with other limits."""
    return spaces.Box(low, high, box.shape, box.dtype.type)


def with_previous(
    space: spaces.Space, actions: spaces.Space, shown: tuple[str, ...], clip: float | None
) -> spaces.Dict:
    """The space of observations with the entries of the previous step.

    Raises:
        UserError: if a name is taken.
    """
    named = named_spaces(space)
    limit = np.inf if clip is None else clip
    added = {
        PREVIOUS_ACTION: encoded_actions(actions),
        PREVIOUS_REWARD: spaces.Box(-limit, limit, (1,), np.float32),
        PREVIOUS_ENDED: spaces.Box(0.0, 1.0, (1,), np.float32),
    }
    for name in shown:
        if name in named:
            raise UserError(f"previous adds {name!r}, which the environment already observes")
        named[name] = added[name]
    return spaces.Dict(named)


def wrap(env: Environment, config: WrapperConfig, name: str = "the task") -> Environment:
    """A JAX task with a run's wrappers around it.

    Raises:
        UserError: for impossible settings, settings that do not fit the task, or settings that only
            Gymnasium environments take.
    """
    config.validate()
    for setting in config.changed:
        if setting not in FOR_JAX:
            raise UserError(
                f"{setting} wraps Gymnasium environments, but {name} is a JAX task, which "
                f"takes {', '.join(FOR_JAX)}; see its own options"
            )
    if config.trial_episodes > 1:
        around = Trials if config.trial_memory else SeparateEpisodes
        env = around(env, config.trial_episodes)
    if config.action_mask is not None:
        env = MaskEntry(env, config.action_mask)
    if config.show_action_mask and not env.masks_actions:
        raise UserError(f"show_action_mask needs a mask, but {name} has none")
    env = HeldObservation(env) if config.whole else env
    if config.keep is not None:
        env = KeptEntries(env, config.keep)
    if config.noise or config.flicker:
        env = NoiseAndFlicker(env, config.noise, config.flicker)
    env = WholeObservation(env) if config.whole else env
    if config.reward_scale != 1.0 or config.reward_clip is not None:
        env = ScaledReward(env, config.reward_scale, config.reward_clip)
    return PreviousStep(env, config.shows_previous) if config.shows_previous else env


class KeptEntries(ObservationWrapper):
    """Shows some entries of a vector observation; `keep` of `WrapperConfig`.

    Its steps have no pictures: the task draws them from whole observations.

    Args:
        env: the task.
        keep: indices of the entries, in the order in which they are shown.

    Raises:
        UserError: if it is not a vector observation, or has no such entry.
    """

    keep: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, env: Environment, keep: tuple[int, ...]):
        WrapperConfig(keep=keep).validate()
        self.keep = keep
        super().__init__(env)

    @property
    def observation_space(self) -> spaces.Space:
        return kept(self.env.observation_space, self.keep)

    def shown(self, state: EnvState, observation: Observation) -> Observation:
        return jnp.asarray(observation)[np.array(self.keep)]

    def task_observation(self, observation: Any) -> None:
        """None: the other entries are not known."""


class NoiseAndFlicker(Wrapper):
    """Adds noise to observations, and blanks some; `noise` and `flicker` of `WrapperConfig`.

    Its steps have no pictures, since most tasks draw them from observations.

    Args:
        env: the task.
        noise: its standard deviation, 0 for none.
        flicker: the probability of a blank observation, 0 for none.

    Raises:
        UserError: for an impossible number, noise without float observations, or observations that
            cannot be blank.
    """

    noise: float = eqx.field(static=True)
    flicker: float = eqx.field(static=True)

    def __init__(self, env: Environment, noise: float = 0.0, flicker: float = 0.0):
        WrapperConfig(noise=noise, flicker=flicker).validate()
        self.noise, self.flicker = float(noise), float(flicker)
        super().__init__(env)

    @property
    def observation_space(self) -> spaces.Space:
        space = self.env.observation_space
        space = with_noise(space) if self.noise else space
        return with_blanks(space) if self.flicker else space

    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        state, seen = self.env.reset(key)
        return state, self._disturbed(seen, key)

    def next_episode(self, state: EnvState, key: Key[Array, ""]) -> tuple[EnvState, Observation]:
        state, seen = self.env.next_episode(state, key)
        return state, self._disturbed(seen, key)

    def opened(self, state: EnvState, observation: Observation) -> tuple[EnvState, Observation]:
        """The unchanged observation: an episode that was opened elsewhere starts undisturbed."""
        return state, observation

    def stepped(
        self, before: EnvState, state: EnvState, transition: Transition, action: Array, key: Array
    ) -> tuple[EnvState, Transition]:
        seen = self._disturbed(transition.observation, key)
        return state, transition._replace(observation=seen)

    def task_observation(self, observation: Any) -> None:
        """None: it is lost under noise, or blank."""

    def _disturbed(self, observation: Any, key: Array) -> Any:
        key, blank_key = jax.random.split(jax.random.fold_in(key, DISTURBANCE))
        seen = observation
        if self.noise:
            keys = (jax.random.fold_in(key, index) for index in itertools.count())
            seen = self._noisy(self.env.observation_space, seen, keys)
        if self.flicker:
            blank = jax.random.bernoulli(blank_key, self.flicker)
            seen = jax.tree.map(lambda x: jnp.where(blank, jnp.zeros_like(x), x), seen)
        return seen

    def _noisy(self, space: spaces.Space, seen: Any, keys: Iterator[Array]) -> Any:
        """An observation with noise; takes a key for each float Box."""
        if isinstance(space, spaces.Dict):
            return {name: self._noisy(part, seen[name], keys) for name, part in space.items()}
        if not is_float_box(space):
            return seen
        seen = jnp.asarray(seen)
        return seen + self.noise * jax.random.normal(next(keys), seen.shape, seen.dtype)


class Held(NamedTuple):
    """A task's state and its latest observation."""

    env: EnvState
    observation: Observation


class HeldObservation(Wrapper):
    """Holds the task's observation in its state, for a `WholeObservation` around it."""

    def __init__(self, env: Environment):
        super().__init__(env)

    def opened(self, state: EnvState, observation: Observation) -> tuple[Held, Observation]:
        return Held(state, observation), observation

    def stepped(
        self, before: Held, state: EnvState, transition: Transition, action: Array, key: Array
    ) -> tuple[Held, Transition]:
        return Held(state, transition.observation), transition

    def task_state(self, state: Held) -> Any:
        return state.env


class WholeObservation(ObservationWrapper):
    """Shows the observation that a `HeldObservation` holds beside what the wrappers between them
    leave of it; `whole` of `WrapperConfig`.

    Args:
        env: the task, with a `HeldObservation` inside.

    Raises:
        UserError: if there is none, or the task already observes entries with these names.
    """

    def __init__(self, env: Environment):
        super().__init__(env)

    @property
    def observation_space(self) -> spaces.Dict:
        return with_whole(self.env.observation_space, self._holder(None)[0].observation_space)

    def shown(self, state: EnvState, observation: Observation) -> dict[str, Any]:
        whole = whole_entries(self._holder(state)[1].observation)
        return {**named_entries(observation), **whole}

    def task_observation(self, observation: dict[str, Any]) -> Any:
        return without_entries(observation, entries_named(observation, (WHOLE,)))

    def _holder(self, state: Any) -> tuple[Environment, Any]:
        """The `HeldObservation` inside, and its state within this wrapper's."""
        env = self.env
        while not isinstance(env, HeldObservation):
            if not isinstance(env, Wrapper):
                raise UserError("WholeObservation needs a HeldObservation inside")
            env, state = env.env, env.task_state(state)
        return env, state


class Allowed(NamedTuple):
    """A task's state and its action mask."""

    env: EnvState
    mask: Bool[Array, " n"]


class MaskEntry(Wrapper):
    """Makes an entry of a Dict observation the action mask; `action_mask` of `WrapperConfig`.

    The entry is no longer observed. If only an entry "observation" remains, it replaces the dict.

    Args:
        env: the task.
        entry: its name; non-zero means allowed.

    Raises:
        UserError: if there is no such entry, it has the wrong shape, or the task already has a
            mask.
    """

    entry: str = eqx.field(static=True)

    def __init__(self, env: Environment, entry: str):
        self.entry = entry
        if env.masks_actions:
            raise UserError(f"the task masks its actions itself: leave action_mask={entry} out")
        named = named_spaces(env.observation_space)
        size = sum(choice_sizes(env.action_space))
        if entry not in named or named[entry].shape != (size,) or len(named) == 1:
            raise UserError(
                f"action_mask={entry} must name one of several entries of the observation, with "
                f"{size} numbers; it has {', '.join(f'{n} {s.shape}' for n, s in named.items())}"
            )
        super().__init__(env)

    @property
    def observation_space(self) -> spaces.Space:
        return space_without(self.env.observation_space, self.entry)

    def opened(self, state: EnvState, observation: Observation) -> tuple[Allowed, Observation]:
        rest, mask = self._split(observation)
        return Allowed(state, mask), rest

    def stepped(
        self, before: Allowed, state: EnvState, transition: Transition, action: Array, key: Array
    ) -> tuple[Allowed, Transition]:
        rest, mask = self._split(transition.observation)
        return Allowed(state, mask), transition._replace(observation=rest)

    def action_mask(self, state: Allowed) -> Bool[Array, " n"]:
        return state.mask

    @property
    def masks_actions(self) -> bool:
        return True

    def task_state(self, state: Allowed) -> Any:
        return state.env

    def task_observation(self, observation: Any) -> None:
        """None: it has lost an entry."""

    def _split(self, observation: Any) -> tuple[Any, Bool[Array, " n"]]:
        rest, mask = take_entry(observation, self.entry)
        return rest, jnp.asarray(mask) != 0


class Earned(NamedTuple):
    """A task's state and the sum of its own rewards in this episode."""

    env: EnvState
    total: Float[Array, ""]


class ScaledReward(Wrapper):
    """Gives min(c, max(-c, scale r)) for a reward r; `reward_scale`, `reward_clip`.

    The metric "return" remains the sum of the task's own rewards.

    Args:
        env: the task.
        scale: the factor of rewards, above 0.
        clip: c, above 0; None for no limit.

    Raises:
        UserError: for an impossible number, or a task that contains `PreviousStep`, which must show
            rewards as the agent learns from them.
    """

    scale: float = eqx.field(static=True)
    clip: float | None = eqx.field(static=True)

    def __init__(self, env: Environment, scale: float = 1.0, clip: float | None = None):
        WrapperConfig(reward_scale=scale, reward_clip=clip).validate()
        if isinstance(env, PreviousStep):
            raise UserError("ScaledReward belongs inside PreviousStep, not around it")
        self.scale, self.clip = scale, clip
        super().__init__(env)
        self.metric_names = (*(n for n in env.metric_names if n != "return"), "return")

    def opened(self, state: EnvState, observation: Observation) -> tuple[Earned, Observation]:
        return Earned(state, jnp.zeros((), jnp.float32)), observation

    def stepped(
        self, before: Earned, state: EnvState, transition: Transition, action: Array, key: Array
    ) -> tuple[Earned, Transition]:
        """The reward that the agent learns from, and the sum of the task's own rewards."""
        total = before.total + transition.reward
        reward = transition.reward * self.scale
        if self.clip is not None:
            reward = jnp.clip(reward, -self.clip, self.clip)
        metrics = {"return": total} | transition.metrics  # an inner wrapper may report it itself
        return Earned(state, total), transition._replace(reward=reward, metrics=metrics)

    def task_state(self, state: Earned) -> Any:
        return state.env


def earned_so_far(env: Environment, state: Any) -> Any:
    """The sum of a task's own rewards before a step, from the state with all wrappers.

    None if agents learn from exactly these rewards.
    """
    while isinstance(env, Wrapper):
        if isinstance(env, ScaledReward):
            return state.total
        env, state = env.env, env.task_state(state)
    return None


class PreviousStep(Wrapper):
    """Shows the agent its previous action, reward and more; `previous` of `WrapperConfig`.

    The observation becomes a dict of "observation" (or the task's own names) and the shown entries:
    "previous_action" (one-hot, concatenated for a MultiDiscrete; a Box or MultiBinary as it is),
    "previous_reward" [1] and, with trials, "previous_ended" [1], 1 where the action ended an
    episode of the trial. All are 0 where an episode opens. The final observation of a truncated
    episode shows the step that led to it.

    Args:
        env: the task; with other rewards, `ScaledReward` goes inside.
        shown: the entries to show; "previous_ended" needs `Trials` inside.

    Raises:
        UserError: if the task already observes entries with these names.
    """

    shown: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, env: Environment, shown: tuple[str, ...]):
        self.shown = shown
        super().__init__(env)

    @property
    def observation_space(self) -> spaces.Dict:
        """A dict of Boxes and of the task's observations."""
        clip = self.env.clip if isinstance(self.env, ScaledReward) else None
        return with_previous(self.env.observation_space, self.action_space, self.shown, clip)

    def opened(self, state: EnvState, observation: Observation) -> tuple[EnvState, Observation]:
        """The first observation of an episode; no action led to it."""
        size = self.observation_space[PREVIOUS_ACTION].shape or ()
        none, nothing = jnp.zeros(size, jnp.float32), jnp.zeros((), jnp.float32)
        return state, self._joined(observation, none, nothing, jnp.zeros((), jnp.bool_))

    def stepped(
        self, before: EnvState, state: EnvState, transition: Transition, action: Array, key: Array
    ) -> tuple[EnvState, Transition]:
        taken = encode_action(self.action_space, action)
        ended = self.env.trial_goes_on(state)
        seen = self._joined(transition.observation, taken, transition.reward, ended)
        return state, transition._replace(observation=seen)

    def task_observation(self, observation: dict[str, Any]) -> Any:
        return without_entries(observation, self.shown)

    def _joined(
        self, observation: Observation, action: Array, reward: Array, ended: Array
    ) -> dict[str, Any]:
        step = {
            PREVIOUS_ACTION: action,
            PREVIOUS_REWARD: reward[None],
            PREVIOUS_ENDED: ended.astype(jnp.float32)[None],
        }
        return {**named_entries(observation), **{name: step[name] for name in self.shown}}


def encode_action(space: spaces.Space, action: Array) -> Float[Array, "..."]:
    """One action as float32 numbers, as `clew.envs.spaces.encode_actions` does for many."""
    if isinstance(space, spaces.Discrete):
        return jax.nn.one_hot(action - int(space.start), int(space.n), dtype=jnp.float32)
    if isinstance(space, spaces.MultiDiscrete):
        sizes, places = space.nvec.ravel(), (action - np.asarray(space.start, np.int32)).ravel()
        parts = [jax.nn.one_hot(places[i], int(n), dtype=jnp.float32) for i, n in enumerate(sizes)]
        return jnp.concatenate(parts)
    return jnp.asarray(action, jnp.float32)
