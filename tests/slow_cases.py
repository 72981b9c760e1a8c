"""Cases of a test that take long: the chosen ones are fast, the others run with `--slow`."""

from collections.abc import Iterable
from typing import Any

import pytest


def fast_only(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """The cases; all except those of `fast` are slow, and each of `fast` must be one of them.

    For a test whose cases compile much and take the same path through the code: the slow tests
    cover their differences, a tenth of them for every commit.
    """
    cases = list(cases)
    unknown = [case for case in fast if case not in cases]
    assert not unknown, f"no cases: {unknown}"

    def marked(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return case if case in fast else pytest.param(*values, marks=pytest.mark.slow)

    return [marked(case) for case in cases]
