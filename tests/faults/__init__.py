"""A campaign of faults: what may happen to a run is made to happen, and counted.

`make faults`, which is `python -m faults` with `tests/` on the path, injects faults of every kind
by turns, into real runs and real processes, and says what became of each.
"""
