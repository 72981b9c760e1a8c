"""Gymnasium environments: what runs in their processes is NumPy and Gymnasium, no JAX.

A worker process imports this package alone, so that it starts quickly and stays small. The
agent's side of it is `clew.bridges.gymnasium.stream`.
"""
