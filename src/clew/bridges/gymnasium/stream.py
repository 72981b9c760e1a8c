"""Streams of episodes of other people's environments, stepped by the host."""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from clew.bridges.gymnasium.answers import (
    Accounts,
    autoreset_mode,
    check_finite,
    final_observations,
)
from clew.bridges.gymnasium.calls import VectorCalls
from clew.bridges.gymnasium.faults import EnvironmentFault, EnvironmentHung
from clew.bridges.gymnasium.spaces import Array, Arrays, adapt_action, adapt_observation
from clew.bridges.gymnasium.transforms import Transforms
from clew.envs.wrappers import WrapperConfig
from clew.errors import UserError

__all__ = ["EnvironmentFault", "EnvironmentHung", "HostStep", "HostStream"]


class HostStep(NamedTuple):
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


class HostStream:
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

    metric_names = ("return", "length")

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
        self._act = adapt_action(vector.single_action_space, name)
        wrappers = wrappers or WrapperConfig()
        wrappers.validate()
        if not self._calls.grouped:
            wrappers.require_no_single(name)
        self._transforms = Transforms(
            wrappers, self._adapt.space, self._act.space, self.num_envs, frozen
        )
        self._accounts = Accounts(self.num_envs)
        self._seed, self._ready = seed, False
        self._actions: Array | None = None

    @property
    def observation_space(self) -> Any:
        """What the agent sees of one environment, through the wrappers."""
        return self._transforms.space

    @property
    def action_space(self) -> Any:
        """What it chooses from: Discrete or MultiDiscrete from 0, MultiBinary, Box of float32."""
        return self._act.space

    def reset(self, seed: int | None = None, timeout: float | None = None) -> HostStep:
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
        observations = self._read(self._calls.reset(seed, timeout)[0])
        self._transforms.learn(observations)
        nothing = np.zeros(self.num_envs, np.float32)
        never, start = np.zeros(self.num_envs, np.bool_), np.ones(self.num_envs, np.bool_)
        seen = self._transforms.observe(observations, None, nothing, start)
        self._ready = True
        metrics = {name: nothing.copy() for name in self.metric_names}
        return HostStep(
            observation=seen,
            reward=nothing,
            discount=np.ones_like(nothing),
            start=start,
            last=never,
            ended=never.copy(),
            metrics=metrics,
            own_reward=nothing.copy(),
        )

    def step(self, actions: Any, timeout: float | None = None) -> HostStep:
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

    def step_wait(self, timeout: float | None = None) -> HostStep:
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

    def __enter__(self) -> "HostStream":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _told(
        self, observations: Any, rewards: Any, terminated: Any, truncated: Any, info: Any
    ) -> HostStep:
        """Makes the step of what the vector environment answered."""
        observations = self._read(observations)
        rewards = np.asarray(rewards, np.float32)
        check_finite(self.name, "reward", rewards, self._accounts)
        terminated, truncated = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        same, raw = self._mode is AutoresetMode.SAME_STEP, None
        cut = truncated & ~terminated
        if same and cut.any():
            raw = final_observations(info, cut, observations, self._adapt, self.name)
            self._check(raw)
        told = self._accounts.step(rewards, terminated, truncated, same)
        self._transforms.learn(observations)
        if raw is not None:
            self._transforms.learn(raw, cut)
        earned = self._transforms.reward(told.reward, told.counted, told.ended)
        final = None
        if raw is not None:
            none = np.zeros_like(cut)
            final = (cut, self._transforms.observe(raw, self._actions, earned, none))
        seen = self._transforms.observe(observations, self._actions, earned, told.start)
        return HostStep(
            observation=seen,
            reward=earned,
            discount=told.discount,
            start=told.start,
            last=told.last,
            ended=told.ended,
            metrics=told.metrics,
            own_reward=told.reward,
            final=final,
        )

    def _read(self, observations: Any) -> Arrays:
        adapted = observations if self._calls.grouped else self._adapt(observations)
        self._check(adapted)
        return adapted

    def _check(self, observations: Arrays) -> None:
        if not isinstance(observations, dict):
            check_finite(self.name, "observation", observations, self._accounts)
            return
        for name, array in observations.items():
            check_finite(self.name, f"observation {name}", array, self._accounts)
