"""A campaign of faults: faults that may happen to a run are injected, and their outcomes counted.

`make faults`, which is `python -m faults` with `tests/` on the path, injects faults of every kind
by turns, into real runs and real processes, and reports the outcome of each.
"""
