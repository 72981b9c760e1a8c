"""Endless streams of episodes of Gymnasium environments."""

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from clew.bridges.gymnasium.faults import EnvironmentFault, EnvironmentHung
from clew.bridges.gymnasium.masks import ActionMasks
from clew.bridges.gymnasium.processes import os_exit_raises
from clew.bridges.gymnasium.spaces import (
    Array,
    Arrays,
    Leaf,
    adapt_action,
    category_counts,
    is_categorical,
    no_category,
)
from clew.bridges.gymnasium.vector import Answer, OtherVector, VectorSource, require_none
from clew.bridges.gymnasium.wrappers import VectorWrappers
from clew.envs.spaces import MASK, join_mask, take_entry, with_mask
from clew.envs.trials import episode_groups, return_names
from clew.envs.wrappers import DISTURBANCE, WrapperConfig
from clew.errors import UserError
from clew.names import METRICS

T = TypeVar("T")

__all__ = ["EnvironmentFault", "EnvironmentHung", "GymnasiumStep", "GymnasiumStream"]


def restore_precision(x64: bool, name: str) -> None:
    """Restores JAX's double-precision flag, if an environment has changed it."""
    if jax.config.values["jax_enable_x64"] == x64:
        return
    jax.config.update("jax_enable_x64", x64)
    warnings.warn(
        f"{name} has set jax_enable_x64 to {not x64} in the learner's process, which would change "
        f"the results; it was reset to {x64}. For an environment that needs it, use worker "
        "processes, in which it stays set: --host.processes",
        stacklevel=2,
    )


def warn_outside(name: str, leaf: Leaf, values: Array) -> None:
    """Warns of an observation outside its space, by more than rounding.

    Like Gymnasium's checker, it checks only the first observations. All are learned from anyway.
    """
    assert isinstance(leaf.space, Box)
    # In float64: a bound may be float32's largest number.
    low, high = leaf.space.low.astype(np.float64), leaf.space.high.astype(np.float64)
    outside = (values < low - 1e-3 * (1 + abs(low))) | (values > high + 1e-3 * (1 + abs(high)))
    if outside.any():
        warnings.warn(
            f"{name} gave {values[outside].flat[0]:g} in its {leaf.field}, outside its declared "
            f"space, {leaf.space}: training continues with it",
            stacklevel=2,
        )


def generator(seed: int | None) -> np.random.Generator:
    """Random numbers for noise and flicker, different from those of an environment of this seed."""
    return np.random.default_rng(None if seed is None else (seed, DISTURBANCE))


def folder_here() -> str:
    """The current folder; empty if it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


class GymnasiumStep(NamedTuple):
    """The result of a step of B environments: `TimeStep` in NumPy, every field [B]."""

    observation: Arrays
    """An array [B, ...], or a dict of them."""
    reward: Array
    """float32; 0 for the step that leaves a `last` observation."""
    discount: Array
    """float32; 0 where the step terminated an episode, else 1."""
    start: Array
    """bool; `observation` opens an episode: the memory is reset before it reads it."""
    last: Array
    """bool; `observation` is the final one of an episode: the next step ignores its action, has no
    reward and opens an episode, so the transition from it is not learned from."""
    ended: Array
    """bool; this step ended an episode, by termination or by truncation."""
    metrics: dict[str, Array]
    """float32; "return" (of the environment's own rewards) and "length" (the agent's steps) of
    the episode that this step ended, 0 elsewhere."""
    own_reward: Array
    """float32; the environments' own rewards, equal to `reward` without wrappers of rewards."""
    numbers: Sequence[dict[str, float]] = ()
    """For every environment whose episode this step ended, the numbers in its last `info` that are
    known here; empty for others."""
    final: tuple[Array, Arrays] | None = None
    """If an episode was truncated and the same step opened the next one: the environments (bool
    [B]), and observations whose rows for these are the final ones. Their value completes the
    return."""


class GymnasiumStream:
    """An endless stream of episodes of a Gymnasium vector environment.

    Vector environments open the next episode in one of two ways:

    | | the ending step returns | the step after it returns |
    |---|---|---|
    | next step | the final observation, `last`; `discount` 0 if it terminated | `start` |
    | same step | the next episode's first observation, `start`; `discount` 0 if it terminated; \
else the final observation in `final` | goes on |

    An episode that both terminated and was truncated counts as terminated.

    Args:
        vector: the environments: `GroupedEnvs`, or any vector environment with the autoreset mode
            in its `metadata`; "disabled" is not supported. The stream owns and closes them.
        name: their name in error messages.
        wrappers: those that work on all environments at once.
        seed: of the first `reset`, unless that is given one.
        frozen: whether the wrappers' statistics are fixed, as in evaluation.

    Raises:
        UserError: no autoreset, an unsupported space, or wrappers that do not fit.
    """

    def __init__(
        self,
        vector: VectorEnv | VectorSource,
        *,
        name: str = "the environment",
        wrappers: WrapperConfig | None = None,
        seed: int | None = None,
        frozen: bool = False,
    ):
        wrappers = wrappers or WrapperConfig()
        wrappers.validate()
        self.vector, self.name, self.num_envs = vector, name, vector.num_envs
        self.metric_names, self._named = metric_names_of(wrappers), wrappers.metrics
        trial_episodes = wrappers.trial_episodes if wrappers.trials else 1
        self._episodes = EpisodeStatistics(self.num_envs, trial_episodes)
        if not isinstance(vector, VectorSource):
            vector = OtherVector(vector, name, wrappers, self._episodes.lengths)
        self._source = vector
        self._adapt = vector.observations
        self._counts = [
            category_counts(leaf.space) if is_categorical(leaf.space) else None
            for leaf in self._adapt.leaves
        ]
        self._act = adapt_action(vector.own_action_space, name)
        self._masks = ActionMasks.of(wrappers, self._act.space)
        seen = self._adapt.space if self._masks is None else self._masks.rest(self._adapt.space)
        self._wrappers = VectorWrappers(wrappers, seen, self._act.space, self.num_envs, frozen)
        self._seed, self._ready, self._waiting = seed, False, False
        self._rng = generator(seed)
        self._actions: Array | None = None
        self._taken, self._x64 = 0, jax.config.values["jax_enable_x64"]
        self._moved = "", ""  # the current folder before an environment changed it, and after

    @property
    def observation_space(self) -> Any:
        """The agent's observations of one environment, after the wrappers."""
        space = self._wrappers.space
        return space if self._masks is None else with_mask(space, self._masks.space)

    @property
    def action_space(self) -> Any:
        """The agent's actions: Discrete or MultiDiscrete from 0, MultiBinary, Box of float32."""
        return self._act.space

    def reset(self, seed: int | None = None, timeout: float | None = None) -> GymnasiumStep:
        """Opens an episode in every environment; a pending step is dropped.

        Args:
            seed: every environment gets its own, derived from this; without one the random streams
                continue (at the first reset: the stream's own seed, if it has one). If a reset
                fails, the next one uses its seed.
            timeout: seconds, as for `step_wait`.

        Raises:
            EnvironmentFault: an environment failed, or gave an invalid number.
            EnvironmentHung: no answer in time.
        """
        self._seed = seed = self._seed if seed is None else seed
        if seed is not None:
            self._rng = generator(seed)
        if self._waiting:
            self._answer(timeout)
        self._ready, self._actions = False, None
        outcome = self._episodes.begin()
        self._wrappers.begin()
        answer = self._asked(lambda: self._source.reset(seed, timeout))
        self._check(answer.observations)
        step = self._seen(answer, outcome)
        self._ready, self._seed = True, None
        return step

    def step(self, actions: Any, timeout: float | None = None) -> GymnasiumStep:
        """`step_async` and `step_wait`."""
        self.step_async(actions)
        return self.step_wait(timeout)

    def step_async(self, actions: Any) -> None:
        """Sends actions [B, ...] to the environments, and returns at once if they have processes.

        Raises:
            UserError: before `reset`, after an error, or twice; or for actions of another shape.
        """
        if not self._ready or self._waiting:
            what = "step_wait" if self._ready else "reset"
            raise UserError(f"{self.name}: call {what} before the next step")
        self._actions = np.asarray(actions)
        expected = (self.num_envs, *(self._act.space.shape or ()))
        if self._actions.shape != expected:
            raise UserError(
                f"{self.name}: actions must have the shape {list(expected)}, got "
                f"{list(self._actions.shape)}"
            )
        sent = self._act(self._actions)
        self._ready = False  # until the result is known to be valid
        self._waiting = True
        self._source.send(sent)
        self._ready = True

    def step_wait(self, timeout: float | None = None) -> GymnasiumStep:
        """The result of `step_async`.

        Args:
            timeout: seconds to wait for environments in processes, None for no limit. It has no
                effect on environments within this process.

        Raises:
            EnvironmentFault: an environment failed, or gave an invalid number.
            EnvironmentHung: no answer in time.
            UserError: nothing was sent.
        """
        if not self._waiting:
            raise UserError(f"{self.name}: step_wait without step_async")
        self._ready = False
        answer = self._answer(timeout)
        self._check(answer.observations)
        rewards = np.asarray(answer.rewards, np.float32)
        self._require_none("reward", ~np.isfinite(rewards), rewards)
        if answer.finals is not None:
            self._check(answer.finals)
        flags = answer.terminated, answer.truncated
        same_step, goes_on = self._source.same_step, answer.trial_goes_on
        outcome = self._episodes.step(rewards, *flags, same_step, goes_on)
        step = self._seen(answer, outcome)
        self._ready = True
        return step

    def show_progress(self, progress: Array) -> None:
        """See `VectorSource.show_progress`."""
        self._source.show_progress(progress)

    def close(self) -> None:
        """Closes the environments and ends their processes, within a few seconds at most.

        If an environment has changed the current folder, and nothing else since, it is restored.
        """
        self._ready = False
        self._keeping_folder(self._source.close)
        before, since = self._moved
        if since and folder_here() == since:
            with contextlib.suppress(OSError):
                os.chdir(before)
        self._moved = "", ""

    def state(self) -> dict[str, Any]:
        """The wrappers' statistics, as a tree of float64 arrays, for a checkpoint."""
        return self._wrappers.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the statistics that `state` returned.

        Raises:
            UserError: they are from other wrappers or from another environment.
        """
        self._wrappers.restore(state)

    def __enter__(self) -> "GymnasiumStream":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _answer(self, timeout: float | None) -> Answer:
        self._waiting = False
        answer = self._asked(lambda: self._source.wait(timeout))
        self._taken += 1
        return answer

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        """Calls the environments, and undoes their side effects in this process."""
        try:
            with os_exit_raises():
                return self._keeping_folder(ask)
        except EnvironmentFault as fault:
            fault.steps = self._taken
            raise
        finally:
            restore_precision(self._x64, self.name)

    def _keeping_folder(self, ask: Callable[[], T]) -> T:
        """Calls environments, and remembers the current folder if they change it."""
        before = folder_here()
        try:
            return ask()
        finally:
            if (since := folder_here()) != before:
                self._moved = self._moved[0] or before, since

    def _seen(self, answer: Answer, outcome: "StepOutcome") -> GymnasiumStep:
        """The agent's step, from the environments' results."""
        wrappers, actions, goes_on = self._wrappers, self._actions, answer.trial_goes_on
        observations, masks = self._split(answer.observations, answer.masks)
        observations = wrappers.noisy(observations, self._rng)
        wrappers.learn(observations)
        finals, final_masks = answer.finals, answer.final_masks
        cut = outcome.ended & (outcome.discount == 1)
        if finals is not None:
            finals, final_masks = self._split(finals, final_masks)
            finals = wrappers.noisy(finals, self._rng)
            wrappers.learn(finals, cut)
        earned = wrappers.reward(outcome.reward, outcome.counted, outcome.ended)
        final = None
        if finals is not None:
            never = np.zeros_like(cut)
            last = wrappers.observe(
                finals, actions, earned, never, blank=wrappers.blanks(self._rng)
            )
            final = (cut, self._masked(last, final_masks, ~never))
        blank = wrappers.blanks(self._rng)
        seen = wrappers.observe(observations, actions, earned, outcome.start, goes_on, blank)
        numbers = answer.numbers or [{}] * self.num_envs
        named = {n: np.array([own.get(n, 0) for own in numbers], np.float32) for n in self._named}
        return GymnasiumStep(
            observation=self._masked(seen, masks, outcome.last),
            reward=earned,
            discount=outcome.discount,
            start=outcome.start,
            last=outcome.last,
            ended=outcome.ended,
            metrics=outcome.metrics | named,
            own_reward=outcome.reward,
            numbers=numbers,
            final=final,
        )

    def _split(self, observations: Arrays, masks: Array | None) -> tuple[Arrays, Array | None]:
        """The observations without the action masks, and the masks [B, n], if there are any."""
        if self._masks is None or self._masks.in_info:
            return observations, masks
        return take_entry(observations, self._masks.source)

    def _masked(self, seen: Arrays, masks: Array | None, last: Array) -> Arrays:
        """The agent's observations with the masks; a `last` one without a mask allows all."""
        if self._masks is None or masks is None:
            return seen
        wrong, _ = self._masks.wrong(masks)
        masks = np.where((last & wrong)[:, None], 1, masks)
        if not (wrong & ~last).any():
            return join_mask(seen, masks != 0)
        wrong, what = self._masks.wrong(masks)
        index = int(np.argmax(wrong))
        step = int(self._episodes.lengths[index])
        raise EnvironmentFault(
            f"{self.name}: environment {index} gave {what}, {step} steps into its episode",
            env=self.name,
            index=index,
            episode_step=step,
            field=MASK,
        )

    def _check(self, observations: Arrays) -> None:
        """Refuses NaN, infinity and invalid categories."""
        arrays = self._adapt.arrays(observations)
        for leaf, count, array in zip(self._adapt.leaves, self._counts, arrays, strict=True):
            if count is not None:
                wrong = no_category(array, count)
                self._require_none(leaf.field, wrong, array, f"values of {leaf.space}")
            elif array.dtype.kind == "f":
                self._require_none(leaf.field, ~np.isfinite(array), array)
                if self._taken <= 1:
                    warn_outside(self.name, leaf, array)

    def _require_none(self, field: str, wrong: Array, values: Array, expected: str = "") -> None:
        require_none(self.name, field, expected, wrong, values, self._episodes.lengths)


class StepOutcome(NamedTuple):
    """A step's rewards and flags, every field [B]; see `GymnasiumStep`."""

    reward: Array
    counted: Array
    """bool; the step followed an action within an episode."""
    discount: Array
    start: Array
    last: Array
    ended: Array
    metrics: dict[str, Array]


def metric_names_of(wrappers: WrapperConfig) -> tuple[str, ...]:
    """The metrics of every episode of a Gymnasium environment."""
    trials = return_names(wrappers.trial_episodes) if wrappers.trials else ()
    return (*METRICS, *trials, *wrappers.metrics)


class TrialStatistics:
    """Returns of the running trials of B environments, by the episode's position in the trial."""

    def __init__(self, num_envs: int, episodes: int):
        groups = episode_groups(episodes)
        self._names = return_names(episodes)
        self._sizes = np.array([len(group) for group in groups])
        self._places = np.repeat(np.arange(len(groups)), self._sizes)
        self._returns = np.zeros((num_envs, len(groups)))
        self._earned = np.zeros(num_envs)
        self._episode = np.zeros(num_envs, np.int64)

    def begin(self) -> None:
        """Restarts all trials."""
        for array in (self._returns, self._earned, self._episode):
            array[:] = 0

    def step(self, rewards: Array, ended: Array, goes_on: Array | None) -> dict[str, Array]:
        """Counts a step; metrics are 0 for environments whose trial did not end."""
        self._earned += rewards
        over = np.flatnonzero(ended if goes_on is None else ended | goes_on)
        self._returns[over, self._places[self._episode[over]]] += self._earned[over]
        self._earned[over] = 0.0
        self._episode[over] += 1
        means = (self._returns * ended[:, None] / self._sizes).astype(np.float32)
        self._returns[ended], self._episode[ended] = 0.0, 0
        return dict(zip(self._names, means.T, strict=True))


class EpisodeStatistics:
    """Returns and lengths of the running episodes of B environments."""

    def __init__(self, num_envs: int, trial_episodes: int = 1):
        self.trials = TrialStatistics(num_envs, trial_episodes) if trial_episodes > 1 else None
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int64)
        self.last = np.zeros(num_envs, np.bool_)

    def begin(self) -> StepOutcome:
        """Restarts all episodes."""
        self.returns[:] = self.lengths[:] = 0
        if self.trials is not None:
            self.trials.begin()
        never = np.zeros(len(self.last), np.bool_)
        self.last = ~never  # as if all had ended, so that the next observations open episodes
        return self.step(np.zeros(len(never), np.float32), never, never, same_step=False)

    def step(
        self,
        rewards: Array,
        terminated: Array,
        truncated: Array,
        same_step: bool,
        goes_on: Array | None = None,
    ) -> StepOutcome:
        """Counts a step; with `same_step` a step that ends an episode opens the next one.

        `goes_on` marks steps that ended an episode within a trial; None for none of them.
        """
        counted = ~self.last
        rewards = rewards * counted
        terminated = terminated & counted
        ended = terminated | (truncated & counted)
        self.returns += rewards
        self.lengths += counted
        metrics = {
            "return": (self.returns * ended).astype(np.float32),
            "length": (self.lengths * ended).astype(np.float32),
        }
        if self.trials is not None:
            metrics |= self.trials.step(rewards, ended, goes_on)
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        start = ended.copy() if same_step else self.last
        self.last = np.zeros_like(ended) if same_step else ended.copy()
        discount = (~terminated).astype(np.float32)
        return StepOutcome(rewards, counted, discount, start, self.last.copy(), ended, metrics)
