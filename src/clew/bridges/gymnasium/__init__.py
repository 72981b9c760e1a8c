"""Gymnasium environments; their processes need only NumPy and Gymnasium, no JAX.

A worker process imports only this package, so that it starts quickly and stays small. The agent's
side is `clew.bridges.gymnasium.stream`.
"""
