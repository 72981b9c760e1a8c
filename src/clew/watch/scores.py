"""An agent's scores of actions: probabilities, or values if it learned action values."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clew.agents.distributions.discrete import FORBIDDEN
from clew.interact.episodes import Recording


def format_number(number: float) -> str:
    """A number in short form, with a true minus sign."""
    size = abs(number)
    text = "0" if size < 0.005 else f"{number:.0f}" if size >= 1000 else f"{number:.3g}"
    return text.replace("-", "\u2212")


class Scores(NamedTuple):
    """The scores of each action at each step of an episode."""

    title: str
    shares: Float[np.ndarray, "time actions"]
    """Scores between 0 and 1, for the length of a bar or the depth of a colour."""
    values: Float[np.ndarray, "time actions"] | None = None
    """Values of the actions, if the agent learned them; else the shares are probabilities."""

    def text(self, step: int, action: int) -> str:
        """The score as text."""
        if self.values is None:
            return f"{self.shares[step, action]:.0%}"
        value = self.values[step, action]
        return format_number(float(value)) if np.isfinite(value) else "\u2013"


def scores_of(recording: Recording) -> Scores | None:
    """The probability of each action, or its value; None unless it is one discrete choice.

    The largest value of the episode has the share 1, the smallest 0, and forbidden actions 0.
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
