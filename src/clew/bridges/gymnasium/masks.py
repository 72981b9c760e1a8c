"""Action masks of Gymnasium environments: `info["action_mask"]`, or an entry of the observation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from clew.bridges.gymnasium.faults import AnswerError
from clew.bridges.gymnasium.spaces import Array, ObservationAdapter, mask_of_info
from clew.envs.spaces import (
    MASK,
    NOTHING_ALLOWED,
    ActionMask,
    allows_some,
    choice_sizes,
    named_spaces,
    space_without,
    with_mask,
)
from clew.envs.wrappers import INFO, WrapperConfig
from clew.errors import UserError


@dataclass(frozen=True)
class ActionMasks:
    """The place and the form of an environment's action masks."""

    source: str
    """ "info", or the name of an entry of the observation."""
    space: ActionMask
    sizes: tuple[int, ...]
    """Number of actions of every discrete choice."""

    @staticmethod
    def of(config: WrapperConfig, actions: spaces.Space) -> "ActionMasks | None":
        """The masks according to the settings; None for none.

        Raises:
            UserError: actions are not discrete, or a mask is to be shown but there is none.
        """
        if config.action_mask is None:
            if config.show_action_mask:
                raise UserError("show_action_mask needs a mask: set action_mask to its place")
            return None
        space = ActionMask(actions, config.show_action_mask)
        return ActionMasks(config.action_mask, space, choice_sizes(actions))

    @property
    def size(self) -> int:
        """Number of entries of a mask."""
        return sum(self.sizes)

    @property
    def in_info(self) -> bool:
        """Whether they are in `info`."""
        return self.source == INFO

    def rest(self, space: spaces.Space) -> spaces.Space:
        """The observation space without the mask.

        Raises:
            UserError: the observation has no such entry, or one of another size, or no other entry.
        """
        named = named_spaces(space)
        if self.in_info:
            with_mask(space, self.space)  # raises if the name is taken
            return space
        if not isinstance(space, spaces.Dict) or self.source not in named:
            raise UserError(
                f"the action mask is to be the entry {self.source!r} of the observation, which has "
                f"{', '.join(named) if isinstance(space, spaces.Dict) else 'none by name'}; it may "
                f'also be {INFO}, for info["{MASK}"]'
            )
        shape = named[self.source].shape
        if shape != self.space.shape:
            raise UserError(
                f"the action mask {self.source!r} has shape {list(shape or ())}, expected "
                f"[{self.size}], one number for each action"
            )
        if len(named) == 1:
            raise UserError(f"there is nothing to observe besides the action mask {self.source!r}")
        return space_without(space, self.source)

    def allow(
        self, adapter: ObservationAdapter, start: Any, action: Any, observation: Any, info: Any
    ) -> bool:
        """Whether a single environment's mask allows an action; False for an invalid mask.

        All arguments except `adapter` are in the environment's form: `start` is its first action,
        None for 0.
        """
        try:
            entries: Any = {} if self.in_info else adapter(observation)
            mask = mask_of_info(info, self.size, False) if self.in_info else entries[self.source]
        except AnswerError:  # reported when the result of the step is read
            return False
        chosen = np.ravel(action) - (0 if start is None else np.ravel(start))
        return bool(mask[np.cumsum((0, *self.sizes[:-1])) + chosen].all())

    def of_infos(self, infos: Any, count: int, ended: Array) -> Array:
        """The masks [B, n] in a vector environment's `info`.

        That is a dict of batches, in which "_action_mask" says which environments have one, or a
        list of dicts. An environment that `ended` its episode needs no mask.

        Raises:
            AnswerError: a mask is missing or has another size.
        """
        if not isinstance(infos, Sequence):
            found, there = infos.get(MASK), infos.get(f"_{MASK}", np.ones(count, bool))
            rows = [{} if found is None or not there[i] else {MASK: found[i]} for i in range(count)]
        else:
            rows = list(infos)
        masks = np.empty((count, self.size), np.uint8)
        for i, info in enumerate(rows):
            try:
                masks[i] = mask_of_info(info, self.size, bool(ended[i]))
            except AnswerError as error:
                raise AnswerError(f"environment {i}: {error}", MASK) from error
        return masks

    def wrong(self, masks: Array) -> tuple[Array, str]:
        """Which environments [B] have an invalid mask, and what is wrong with the first one."""
        no_flags = ((masks != 0) & (masks != 1)).any(axis=-1)
        nothing = ~allows_some(masks != 0, self.sizes)
        bad = no_flags | nothing
        if not bad.any():
            return bad, ""
        index = int(np.argmax(bad))
        if no_flags[index]:
            return bad, f"the action mask {masks[index].tolist()}; expected zeros and ones"
        return bad, NOTHING_ALLOWED
