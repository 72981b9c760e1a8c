"""What runs in the processes of other people's environments: NumPy and Gymnasium, no JAX.

A worker process imports this package alone, so that it starts quickly and stays small. The
agent's side of it is `clew.bridges.gymnasium.stream`.
"""
