"""Endless streams of episodes of Gymnasium environments."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from clew.bridges.gymnasium.faults import EnvironmentFault, EnvironmentHung, MaskError
from clew.bridges.gymnasium.masks import ActionMasks
from clew.bridges.gymnasium.spaces import (
    Array,
    Arrays,
    Leaf,
    ObservationAdapter,
    adapt_action,
    adapt_observation,
    category_counts,
    exact_types,
    is_categorical,
    lost,
)
from clew.bridges.gymnasium.trials import ENDED
from clew.bridges.gymnasium.vector import VectorCalls
from clew.bridges.gymnasium.wrappers import Transforms
from clew.envs.spaces import MASK, join_mask, take_entry, with_mask
from clew.envs.trials import episode_groups, return_names
from clew.envs.wrappers import INFO, WrapperConfig
from clew.errors import UserError

__all__ = ["EnvironmentFault", "EnvironmentHung", "GymnasiumStep", "GymnasiumStream"]

METRICS = ("return", "length")
"""What is measured of every episode."""


class GymnasiumStep(NamedTuple):
    """What an agent sees after a step of B environments: `TimeStep` in NumPy, every field [B]."""

    observation: Arrays
    """An array [B, ...], or a dict of them."""
    reward: Array
    """float32; 0 for the step that leaves a `last` observation."""
    discount: Array
    """float32; 0 where the step terminated an episode, else 1."""
    start: Array
    """bool; `observation` opens an episode: a memory forgets before it reads it."""
    last: Array
    """bool; `observation` is the final one of an episode: the next step ignores its action,
    earns nothing and opens an episode, so the transition that leaves it teaches nothing."""
    ended: Array
    """bool; this step ended an episode, by termination or by truncation."""
    metrics: dict[str, Array]
    """float32; "return" (of the environment's own rewards) and "length" (the agent's steps) of
    the episode that this step ended, 0 elsewhere."""
    own_reward: Array
    """float32; the environments' own, which `reward` is without wrappers of rewards."""
    final: tuple[Array, Arrays] | None = None
    """Where an episode was truncated and the same step opened the next one: which (bool [B]), and
    observations of which those rows are the final ones. Their value completes the return."""


class GymnasiumStream:
    """An endless stream of episodes of a Gymnasium vector environment.

    The two ways in which vector environments open the next episode look different:

    | | the ending step returns | the step after it returns |
    |---|---|---|
    | next step | the final observation, `last`; `discount` 0 if it terminated | `start` |
    | same step | the next episode's first observation, `start`; `discount` 0 if it terminated; \
else the final observation in `final` | goes on |

    An episode that both terminated and was truncated counts as terminated.

    Args:
        vector: the environments, with the autoreset mode in their `metadata`; "disabled" will not
            do. They belong to the stream, which closes them.
        name: what error messages call them.
        wrappers: those that work on all environments at once.
        seed: of the first `reset`, unless that is given one.
        frozen: the wrappers learn no statistics, as in evaluation.

    Raises:
        UserError: no autoreset, a space that is not supported, or wrappers that do not fit.
    """

    def __init__(
        self,
        vector: VectorEnv,
        *,
        name: str = "the environment",
        wrappers: WrapperConfig | None = None,
        seed: int | None = None,
        frozen: bool = False,
    ):
        self.vector, self.name = vector, name
        self.num_envs = vector.num_envs
        self._mode = autoreset_mode(vector, name)
        self._calls = VectorCalls(vector, name)
        self._adapt = adapt_observation(vector.single_observation_space, name)
        self._categories = [
            (leaf, category_counts(leaf.space))
            for leaf in self._adapt.leaves
            if is_categorical(leaf.space)
        ]
        self._act = adapt_action(vector.single_action_space, name)
        wrappers = wrappers or WrapperConfig()
        wrappers.validate()
        if not self._calls.grouped:
            # Trials may be in the environments already; `info` says so.
            replace(wrappers, trial_episodes=1, trial_memory=True).require_no_single(name)
        self._masks = ActionMasks.of(wrappers, self._act.space)
        seen = self._adapt.space
        if self._masks is not None:
            # Groups show the mask of `info` as an entry; other vector environments leave it there.
            self._mask_entry = self._masks.source
            if self._masks.in_info:
                self._mask_entry = MASK if self._calls.grouped else ""
            taken = replace(self._masks, source=self._mask_entry or INFO)
            seen = taken.rest(seen)
        self._transforms = Transforms(wrappers, seen, self._act.space, self.num_envs, frozen)
        self.metric_names = metric_names_of(wrappers)
        self._accounts = Accounts(self.num_envs, wrappers.trial_episodes if wrappers.trials else 1)
        self._seed, self._ready = seed, False
        self._actions: Array | None = None

    @property
    def observation_space(self) -> Any:
        """What the agent sees of one environment, through the wrappers."""
        space = self._transforms.space
        return space if self._masks is None else with_mask(space, self._masks.space)

    @property
    def action_space(self) -> Any:
        """What it chooses from: Discrete or MultiDiscrete from 0, MultiBinary, Box of float32."""
        return self._act.space

    def reset(self, seed: int | None = None, timeout: float | None = None) -> GymnasiumStep:
        """Opens an episode in every environment.

        Args:
            seed: every environment gets its own, derived from this; without one the random
                streams go on (at the first reset: the stream's own seed, if it has one).
            timeout: seconds, as for `step_wait`.

        Raises:
            EnvironmentFault: an environment failed, or gave a number that is none.
            EnvironmentHung: no answer in time.
        """
        seed, self._seed = self._seed if seed is None else seed, None
        self._ready = False
        self._accounts.begin()
        self._transforms.begin()
        given, info = self._calls.reset(seed, timeout)
        nothing = np.zeros(self.num_envs, np.float32)
        never, start = np.zeros(self.num_envs, np.bool_), np.ones(self.num_envs, np.bool_)
        observations, masks = self._split(self._read(given), info, never)
        self._transforms.learn(observations)
        seen = self._transforms.observe(observations, None, nothing, start)
        seen = self._masked(seen, masks, never)
        self._ready = True
        metrics = {name: nothing.copy() for name in self.metric_names}
        return GymnasiumStep(
            observation=seen,
            reward=nothing,
            discount=np.ones_like(nothing),
            start=start,
            last=never,
            ended=never.copy(),
            metrics=metrics,
            own_reward=nothing.copy(),
        )

    def step(self, actions: Any, timeout: float | None = None) -> GymnasiumStep:
        """`step_async` and `step_wait`."""
        self.step_async(actions)
        return self.step_wait(timeout)

    def step_async(self, actions: Any) -> None:
        """Sends actions [B, ...] to the environments, and returns at once if they have processes.

        Raises:
            UserError: before `reset`, after an error, or twice.
        """
        if not self._ready or self._calls.waiting:
            what = "step_wait" if self._ready else "reset"
            raise UserError(f"{self.name}: call {what} before the next step")
        self._actions = np.asarray(actions)
        self._ready = False  # until the answer has proved sound
        self._calls.send(self._act(self._actions))
        self._ready = True

    def step_wait(self, timeout: float | None = None) -> GymnasiumStep:
        """What the environments answer to `step_async`.

        Args:
            timeout: seconds to wait for environments in processes, None for ever. Environments
                within this process cannot be waited for: what hangs there hangs.

        Raises:
            EnvironmentFault: an environment failed, or gave a number that is none.
            EnvironmentHung: no answer in time.
            UserError: nothing was sent.
        """
        if not self._calls.waiting:
            raise UserError(f"{self.name}: step_wait without step_async")
        self._ready = False
        step = self._told(*self._calls.wait(timeout))
        self._ready = True
        return step

    def close(self) -> None:
        """Closes the environments and ends their processes, within a few seconds at most."""
        self._ready = False
        self._calls.close()

    def state(self) -> dict[str, Any]:
        """What the wrappers have learned, as a tree of float64 arrays, for a checkpoint."""
        return self._transforms.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Puts back what `state` gave.

        Raises:
            UserError: it is of other wrappers or of another environment.
        """
        self._transforms.restore(state)

    def __enter__(self) -> "GymnasiumStream":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _told(
        self, observations: Any, rewards: Any, terminated: Any, truncated: Any, info: Any
    ) -> GymnasiumStep:
        """Makes the step of what the vector environment answered."""
        observations = self._read(observations)
        rewards = np.asarray(rewards, np.float32)
        check_finite(self.name, "reward", rewards, self._accounts)
        terminated = self._flags("terminated", terminated)
        truncated = self._flags("truncated", truncated)
        same, raw = self._mode is AutoresetMode.SAME_STEP, None
        cut = truncated & ~terminated
        if same and cut.any():
            raw = final_observations(info, cut, observations, self._adapt, self.name)
            self._check(raw)
        closing = np.zeros_like(cut) if same else terminated | truncated
        observations, masks = self._split(observations, info, closing)
        if raw is not None and self._masks is not None and self._mask_entry:
            raw = take_entry(raw, self._mask_entry)[0]
        goes_on = self._goes_on(info)
        outcome = self._accounts.step(rewards, terminated, truncated, same, goes_on)
        self._transforms.learn(observations)
        if raw is not None:
            self._transforms.learn(raw, cut)
        earned = self._transforms.reward(outcome.reward, outcome.counted, outcome.ended)
        final = None
        if raw is not None:
            none = np.zeros_like(cut)
            last = self._transforms.observe(raw, self._actions, earned, none)
            final = (cut, self._masked(last, masks, ~none))
        seen = self._transforms.observe(observations, self._actions, earned, outcome.start, goes_on)
        seen = self._masked(seen, masks, outcome.last)
        return GymnasiumStep(
            observation=seen,
            reward=earned,
            discount=outcome.discount,
            start=outcome.start,
            last=outcome.last,
            ended=outcome.ended,
            metrics=outcome.metrics,
            own_reward=outcome.reward,
            final=final,
        )

    def _goes_on(self, info: Any) -> Array | None:
        """Which environments ended an episode of a trial and opened its next one, [B] if any."""
        found = info.get(ENDED) if isinstance(info, dict) else None
        return None if found is None else np.asarray(found, np.bool_)

    def _read(self, observations: Any) -> Arrays:
        adapted = observations
        if not self._calls.grouped:  # groups have checked their own
            for leaf in self._adapt.leaves:
                value, exact = leaf.pick(observations), exact_types(leaf.dtype)
                if exact and value.dtype.char not in exact and value.dtype != object:
                    self._require_none("observation", leaf, lost(value, leaf.dtype), value)
            adapted = self._adapt(observations)
        self._check(adapted)
        return adapted

    def _split(self, observations: Arrays, info: Any, ended: Array) -> tuple[Arrays, Array | None]:
        """What is observed beside the action masks, and these masks [B, n], if there are any."""
        if self._masks is None:
            return observations, None
        if self._mask_entry:
            return take_entry(observations, self._mask_entry)
        try:
            return observations, self._masks.of_infos(info, self.num_envs, ended)
        except MaskError as error:
            raise EnvironmentFault(f"{self.name}: {error}", env=self.name, field=MASK) from error

    def _masked(self, seen: Arrays, masks: Array | None, last: Array) -> Arrays:
        """What the agent sees, with the masks; on a `last` observation everything is allowed."""
        if self._masks is None or masks is None:
            return seen
        masks = np.where(last[:, None], 1, masks)
        wrong, what = self._masks.wrong(masks)
        if not what:
            return join_mask(seen, masks != 0)
        index = int(np.argmax(wrong))
        step = int(self._accounts.lengths[index])
        raise EnvironmentFault(
            f"{self.name}: environment {index} gave {what}, {step} steps into its episode",
            env=self.name,
            index=index,
            episode_step=step,
            field=MASK,
        )

    def _check(self, observations: Arrays) -> None:
        for leaf, count in self._categories:
            array = observations[leaf.name] if isinstance(observations, dict) else observations
            # As numbers without a sign those below 0 are large, so that one comparison is enough.
            wrong = array.view(np.uint32) >= count
            if wrong.any():
                self._require_none("observation", leaf, wrong, array)
        if not isinstance(observations, dict):
            check_finite(self.name, "observation", observations, self._accounts)
            return
        for name, array in observations.items():
            check_finite(self.name, f"observation {name}", array, self._accounts)

    def _require_none(self, field: str, leaf: Leaf | None, wrong: Array, values: Array) -> None:
        """Raises `EnvironmentFault` for the first environment with a wrong value [B, ...]."""
        rows = wrong.reshape(len(wrong), -1)
        if not rows.any():
            return
        index = int(np.argmax(rows.any(axis=1)))
        value = values.reshape(len(wrong), -1)[index][rows[index]][0]
        allowed = "True or False" if leaf is None else f"values of {leaf.space}"
        field = f"{field} {leaf.name}".rstrip() if leaf is not None else field
        step = int(self._accounts.lengths[index])
        raise EnvironmentFault(
            f"{self.name}: environment {index} gave {value} in its {field}, {step} steps into its "
            f"episode; expected {allowed}",
            env=self.name,
            index=index,
            episode_step=step,
            field=field,
        )

    def _flags(self, name: str, values: Any) -> Array:
        flags = np.asarray(values)
        if flags.dtype != np.bool_:
            self._require_none(name, None, (flags != 0) & (flags != 1), flags)
        return flags.astype(np.bool_, copy=False)


WORKING = "NEXT_STEP and SAME_STEP work"


def autoreset_mode(vector: VectorEnv, name: str) -> AutoresetMode:
    """How a vector environment opens the next episode.

    Raises:
        UserError: it does not say, or leaves it to the caller.
    """
    declared = vector.metadata.get("autoreset_mode")
    try:
        mode = AutoresetMode(getattr(declared, "value", declared))
    except ValueError as error:
        raise UserError(
            f"{name}: metadata['autoreset_mode'] of the vector environment must be a "
            f"gymnasium.vector.AutoresetMode, of which {WORKING}; it is {declared!r}"
        ) from error
    if mode is AutoresetMode.DISABLED:
        raise UserError(f"{name}: its autoreset mode is DISABLED, of which none: {WORKING}")
    return mode


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
    """What is measured of every episode of a Gymnasium environment."""
    return (*METRICS, *(return_names(wrappers.trial_episodes) if wrappers.trials else ()))


class TrialAccounts:
    """Returns by the place of the episode in the running trials of B environments.

    Args:
        num_envs: B.
        episodes: of a trial.
    """

    def __init__(self, num_envs: int, episodes: int):
        groups = episode_groups(episodes)
        self._names = return_names(episodes)
        self._sizes = np.array([len(group) for group in groups])
        self._places = np.repeat(np.arange(len(groups)), self._sizes)
        self._returns = np.zeros((num_envs, len(groups)))
        self._earned = np.zeros(num_envs)
        self._episode = np.zeros(num_envs, np.int64)

    def begin(self) -> None:
        """All trials begin anew."""
        for array in (self._returns, self._earned, self._episode):
            array[:] = 0

    def step(self, rewards: Array, ended: Array, goes_on: Array | None) -> dict[str, Array]:
        """Counts a step; the metrics are 0 where no trial ended."""
        self._earned += rewards
        over = np.flatnonzero(ended if goes_on is None else ended | goes_on)
        self._returns[over, self._places[self._episode[over]]] += self._earned[over]
        self._earned[over] = 0.0
        self._episode[over] += 1
        means = (self._returns * ended[:, None] / self._sizes).astype(np.float32)
        self._returns[ended], self._episode[ended] = 0.0, 0
        return dict(zip(self._names, means.T, strict=True))


class Accounts:
    """Returns and lengths of the running episodes of B environments."""

    def __init__(self, num_envs: int, trial_episodes: int = 1):
        self.trials = TrialAccounts(num_envs, trial_episodes) if trial_episodes > 1 else None
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int64)
        self.last = np.zeros(num_envs, np.bool_)

    def begin(self) -> None:
        """All episodes begin anew."""
        for array in (self.returns, self.lengths, self.last):
            array[:] = 0
        if self.trials is not None:
            self.trials.begin()

    def step(
        self,
        rewards: Array,
        terminated: Array,
        truncated: Array,
        same: bool,
        goes_on: Array | None = None,
    ) -> StepOutcome:
        """Counts a step.

        Args:
            rewards: [B], of this step.
            terminated: [B], whether the episode ended in the task itself.
            truncated: [B], whether it was cut off, as by a limit of time.
            same: the step that ends an episode opens the next one.
            goes_on: [B], which steps ended an episode of a trial; None for none of them.
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
        start = ended.copy() if same else self.last
        self.last = np.zeros_like(ended) if same else ended.copy()
        discount = (~terminated).astype(np.float32)
        return StepOutcome(rewards, counted, discount, start, self.last.copy(), ended, metrics)


def check_finite(name: str, field: str, array: Array, accounts: Accounts) -> None:
    """Raises `EnvironmentFault` for the first environment with NaN or infinity in [B, ...].

    Whole numbers and uint8 pass: they have neither.
    """
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    index = int(np.argmax(bad))
    row = array.reshape(len(array), -1)[index]
    value = row[~np.isfinite(row)][0]
    step = int(accounts.lengths[index])
    raise EnvironmentFault(
        f"{name}: environment {index} gave {value} in its {field}, {step} steps into its episode",
        env=name,
        index=index,
        episode_step=step,
        field=field,
    )


def final_observations(
    info: Any, rows: Array, like: Arrays, adapter: ObservationAdapter, name: str
) -> Arrays:
    """The final observations of the environments in a mask [B], adapted; other rows are 0.

    `info["final_obs"]` (before Gymnasium 1.1, `"final_observation"`) is, by who made the vector
    environment: an array of objects, one observation an environment and None elsewhere
    (Gymnasium's own); one batch, in a Dict space a dict of batches (compiled ones); or `info` is a
    list of dicts (`DictInfoToList`).

    Raises:
        UserError: there is none for an environment that was truncated.
    """
    if isinstance(like, dict):
        out: Arrays = {key: np.zeros_like(array) for key, array in like.items()}
    else:
        out = np.zeros_like(like)
    for i in np.flatnonzero(rows):
        observation = _final_of(info, int(i))
        if observation is None:
            raise UserError(
                f"{name}: environment {i} was truncated and reset in the same step, and info has "
                'no "final_obs" of it, whose value completes the return'
            )
        seen = adapter(observation)
        if isinstance(out, dict):
            assert isinstance(seen, dict)
            for key, array in out.items():
                array[i] = seen[key]
        else:
            out[i] = seen
    return out


def _final_of(info: Any, i: int) -> Any:
    if isinstance(info, Sequence):
        info, i = info[i], -1
    found = info.get("final_obs", info.get("final_observation"))
    return found if found is None or i < 0 else _row(found, i)


def _row(batch: Any, i: int) -> Any:
    if isinstance(batch, dict):
        return {key: _row(value, i) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_row(value, i) for value in batch)
    return batch[i]
