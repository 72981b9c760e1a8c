"""A campaign of faults: what may happen to a run is made to happen, and counted.

`python -m clew.lab.faults` (or `make faults`) injects faults of every kind by turns, into real runs
and real processes, and says what became of each.
"""
