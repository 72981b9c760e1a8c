"""Reading what a vector environment answers: ends of episodes, final observations, faults."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from clew.bridges.gymnasium.faults import EnvironmentFault
from clew.bridges.gymnasium.spaces import Array, Arrays, ObservationAdapter
from clew.errors import UserError

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


class Told(NamedTuple):
    """A step's rewards and flags, every field [B]; see `HostStep`."""

    reward: Array
    counted: Array
    """bool; the step followed an action within an episode."""
    discount: Array
    start: Array
    last: Array
    ended: Array
    metrics: dict[str, Array]


class Accounts:
    """Returns and lengths of the running episodes of B environments."""

    def __init__(self, num_envs: int):
        self.returns = np.zeros(num_envs, np.float64)
        self.lengths = np.zeros(num_envs, np.int64)
        self.last = np.zeros(num_envs, np.bool_)

    def begin(self) -> None:
        """All episodes begin anew."""
        for array in (self.returns, self.lengths, self.last):
            array[:] = 0

    def step(self, rewards: Array, terminated: Array, truncated: Array, same: bool) -> Told:
        """Counts a step.

        Args:
            rewards, terminated, truncated: [B], what the environments said.
            same: the step that ends an episode opens the next one.
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
        self.returns[ended] = 0.0
        self.lengths[ended] = 0
        start = ended.copy() if same else self.last
        self.last = np.zeros_like(ended) if same else ended.copy()
        discount = (~terminated).astype(np.float32)
        return Told(rewards, counted, discount, start, self.last.copy(), ended, metrics)


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
