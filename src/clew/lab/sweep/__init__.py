"""Searches for training settings: trials over a declared space, and the best on fresh seeds."""
