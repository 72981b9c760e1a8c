"""Searches settings of training: trials of a declared space, and the best on fresh seeds."""
