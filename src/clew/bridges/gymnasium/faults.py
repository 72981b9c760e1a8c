"""Errors that name the environment, the step and the field in which something went wrong."""

from collections.abc import Sequence

from clew.errors import UserError


class EnvironmentFault(UserError):
    """An environment failed, or gave a number that is none.

    Attributes:
        env: name of the environment, "gymnasium:CartPole-v1".
        index: which of the environments side by side, or None where it cannot be told.
        episode_step: steps of the episode before the failing call, or None.
        field: "observation", "observation NAME" or "reward"; "step", "reset" or "worker" where
            the environment raised or its process died.
        lost: True if a process is gone and the stream with it: `close` it and open another.
            False if `HostStream.reset` is enough, which builds the faulty environment again.
    """

    def __init__(
        self,
        message: str,
        *,
        env: str = "",
        index: int | None = None,
        episode_step: int | None = None,
        field: str = "",
        lost: bool = False,
    ):
        super().__init__(message)
        self.env = env
        self.index = index
        self.episode_step = episode_step
        self.field = field
        self.lost = lost


class EnvironmentHung(EnvironmentFault):
    """An environment did not answer in time; the stream is lost.

    Attributes:
        indices: the environments that still have not answered; of those that share a process,
            the one that it is at work on.
    """

    def __init__(self, message: str, *, env: str = "", indices: Sequence[int] = ()):
        index = indices[0] if len(indices) == 1 else None
        super().__init__(message, env=env, index=index, field="worker", lost=True)
        self.indices = tuple(indices)
