"""Bounds on the optimal returns of POPGym's tasks: exact, or from below and from above."""
