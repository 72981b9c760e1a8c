"""What an agent says of each action, as numbers: probabilities, or values if it learned these."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clew.agents.distributions.discrete import FORBIDDEN
from clew.interact.episodes import Recording


def format_number(number: float) -> str:
    """A number in few letters, with a true minus sign."""
    size = abs(number)
    text = "0" if size < 0.005 else f"{number:.0f}" if size >= 1000 else f"{number:.3g}"
    return text.replace("-", "\u2212")


class Scores(NamedTuple):
    """What is shown of each action at each step of an episode."""

    title: str
    shares: Float[np.ndarray, "time actions"]
    """Between 0 and 1: how much is filled of what stands for the action."""
    values: Float[np.ndarray, "time actions"] | None = None
    """Of the actions, where an agent learned these; else the shares are probabilities."""

    def text(self, step: int, action: int) -> str:
        """The number as it is written."""
        if self.values is None:
            return f"{self.shares[step, action]:.0%}"
        value = self.values[step, action]
        return format_number(float(value)) if np.isfinite(value) else "\u2013"


def scores_of(recording: Recording) -> Scores | None:
    """The probability of each action, or its value; None where actions are no choices.

    Of values the largest of the episode fills everything and the smallest nothing. What is
    forbidden has none.
    """
    if recording.action_values is None:
        if recording.probabilities is None:
            return None
        shares = np.asarray(recording.probabilities, float)
        return Scores("policy: probability of each action", shares)
    values = np.asarray(recording.action_values, float)
    values = np.where(values > FORBIDDEN / 2, values, np.nan)
    low, high = np.nanmin(values), np.nanmax(values)
    shares = np.nan_to_num((values - low) / ((high - low) or 1.0))
    return Scores("value of each action", shares, values)
