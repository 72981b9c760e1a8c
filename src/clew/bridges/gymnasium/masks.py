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
    """Where an environment's action masks are, and what they must be."""

    source: str
    """ "info", or the name of an entry of the observation."""
    space: ActionMask
    sizes: tuple[int, ...]
    """Actions of every choice."""

    @staticmethod
    def of(config: WrapperConfig, actions: spaces.Space) -> "ActionMasks | None":
        """The masks that settings ask for; None for none.

        Raises:
            UserError: actions are no choices, or a mask is to be shown that is not there.
        """
        if config.action_mask is None:
            if config.show_action_mask:
                raise UserError("show_action_mask needs a mask: say where it is with action_mask")
            return None
        space = ActionMask(actions, config.show_action_mask)
        return ActionMasks(config.action_mask, space, choice_sizes(actions))

    @property
    def size(self) -> int:
        """Numbers of a mask."""
        return sum(self.sizes)

    @property
    def in_info(self) -> bool:
        """Whether they are in `info`."""
        return self.source == INFO

    def rest(self, space: spaces.Space) -> spaces.Space:
        """The space of what is observed beside the mask.

        Raises:
            UserError: the observation has no such entry, or one of another size, or no other.
        """
        named = named_spaces(space)
        if self.in_info:
            with_mask(space, self.space)  # says if the name is taken
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
            raise UserError(f"there is nothing to observe beside the action mask {self.source!r}")
        return space_without(space, self.source)

    def allow(
        self, adapter: ObservationAdapter, start: Any, action: Any, observation: Any, info: Any
    ) -> bool:
        """Whether a single environment's mask allows an action; not where it is none.

        All but `adapter` is as the environment has it: `start` is its first action, None for 0.
        """
        try:
            entries: Any = {} if self.in_info else adapter(observation)
            mask = mask_of_info(info, self.size, False) if self.in_info else entries[self.source]
        except AnswerError:  # whoever reads the step's answer says what is wrong with it
            return False
        chosen = np.ravel(action) - (0 if start is None else np.ravel(start))
        return bool(mask[np.cumsum((0, *self.sizes[:-1])) + chosen].all())

    def of_infos(self, infos: Any, count: int, ended: Array) -> Array:
        """The masks [B, n] in what a vector environment gives as `info`.

        A dict of batches, in which "_action_mask" says whose are there, or a list of dicts. Who
        has `ended` an episode needs no mask.

        Raises:
            AnswerError: one is missing or of another size.
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
        """Which environments [B] have a mask that is none, and what is wrong with the first."""
        no_flags = ((masks != 0) & (masks != 1)).any(axis=-1)
        nothing = ~allows_some(masks != 0, self.sizes)
        bad = no_flags | nothing
        if not bad.any():
            return bad, ""
        index = int(np.argmax(bad))
        if no_flags[index]:
            return bad, f"the action mask {masks[index].tolist()}; expected zeros and ones"
        return bad, NOTHING_ALLOWED
