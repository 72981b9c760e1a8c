"""How many faults of environments of others a run survives."""

from collections.abc import Callable

from clew.bridges.gymnasium.faults import EnvironmentFault

NUMBERS = ("observation", "reward")
"""Faults in what an environment says, which opening it anew would not mend."""


class FaultBudget:
    """Counts faults, tells of those that the run survives, and raises the one that it does not.

    Args:
        allowed: how many are survived.
        tell: is told of them.
    """

    def __init__(self, allowed: int, tell: Callable[[str], None]):
        self.allowed, self.used = allowed, 0
        self._tell = tell

    def survive(
        self, fault: EnvironmentFault, mended: str = "opened anew", text: str | None = None
    ) -> None:
        """Tells of a fault and that it is mended, or raises it; in other words if any are given."""
        if text is not None:
            fault.args = (text,)
        self.used += 1
        if fault.field.split(" ")[0] in NUMBERS or self.used > self.allowed:
            raise fault
        self._tell(f"{fault}; {mended} ({self.used} of at most {self.allowed} times)")
