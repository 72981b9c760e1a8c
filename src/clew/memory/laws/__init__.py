"""The laws that every memory obeys, and `check`, which tests any memory against them."""

from clew.memory.laws.check import check
from clew.memory.laws.report import LAWS, Failure, LawBroken, LawCase, LawReport

__all__ = ["LAWS", "Failure", "LawBroken", "LawCase", "LawReport", "check"]
