"""Bounds of the optimal returns in POPGym's tasks: computed, or from below and from above."""
