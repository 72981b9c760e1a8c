"""A Kalman filter (Kalman, 1960) of many episodes at once."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Rows = Float[np.ndarray, "episodes numbers"]


class Belief(NamedTuple):
    """The estimated state in every episode: means and covariances."""

    means: Rows
    covariances: Float[np.ndarray, "episodes numbers numbers"]

    def update(self, innovation: Rows, jacobian: np.ndarray, variance: float) -> "Belief":
        """Updates with an observation, given its noise variance and its derivative by the state."""
        spread = jacobian @ self.covariances
        noise = variance * np.eye(innovation.shape[1])
        gain = np.linalg.solve(spread @ jacobian.mT + noise, spread).mT
        means = self.means + (gain @ innovation[..., None])[..., 0]
        return Belief(means, self.covariances - gain @ jacobian @ self.covariances)

    def predict(self, means: Rows, jacobian: np.ndarray, process_noise: float) -> "Belief":
        """A step later."""
        covariances = jacobian @ self.covariances @ jacobian.mT
        return Belief(means, covariances + process_noise * np.eye(means.shape[1]))
