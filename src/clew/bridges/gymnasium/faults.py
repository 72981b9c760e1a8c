"""Errors that name the environment, the step and the field that failed."""

from collections.abc import Iterable, Sequence
from typing import Any

from clew.errors import UserError


class EnvironmentFault(UserError):
    """An environment failed, or gave a number that is not finite.

    Attributes:
        env: name of the environment, "gymnasium:CartPole-v1".
        indices: the environments of the batch that failed; empty if unknown.
        episode_step: steps of the episode before the failing call, or None.
        field: "observation", "observation NAME", "reward", "terminated", "truncated" or
            "action_mask"; "answer" for a return value of another form; "step", "reset" or "worker"
            if the environment raised or its process died.
        cause: the failure without its place, which is the same if it happens again.
        steps: number of steps of the stream before it, or 0.
        lost: True if a process is gone and the stream with it: `close` it and open another.
            False if `GymnasiumStream.reset` is enough, which rebuilds the faulty environment.
    """

    def __init__(
        self,
        message: str,
        *,
        env: str = "",
        index: int | None = None,
        indices: Sequence[int] = (),
        episode_step: int | None = None,
        field: str = "",
        cause: str = "",
        lost: bool = False,
    ):
        super().__init__(message)
        self.env = env
        self.indices = tuple(indices) if index is None else (index,)
        self.episode_step = episode_step
        self.field = field
        self.cause, self.steps = cause or field, 0
        self.lost = lost

    @property
    def index(self) -> int | None:
        """The environment that failed, if it is known and the only one."""
        return self.indices[0] if len(self.indices) == 1 else None


class AnswerError(UserError):
    """A value that an environment returned does not have Gymnasium's form or is not in its space.

    `field` is that of an `EnvironmentFault`.
    """

    def __init__(self, message: str, field: str = "answer"):
        super().__init__(message)
        self.field = field


class EnvironmentHung(EnvironmentFault):
    """An environment did not answer in time; the stream is lost.

    `indices` are the environments that have not answered; if some share a process, the one that the
    process is working on.
    """

    @classmethod
    def after(cls, seconds: Any, env: str, late: Iterable[int]) -> "EnvironmentHung":
        """The error for environments that did not answer within `seconds`."""
        indices = list(late)
        which = f"environment{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"
        says = f"{env}: {which} gave no answer within {seconds:g} s"
        return cls(says, env=env, indices=indices, field="worker", lost=True)
