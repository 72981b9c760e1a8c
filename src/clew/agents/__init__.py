"""Agents and how they learn: network, trajectory, returns, loss and gradient step.

Everything here is a function of (agent, trajectory, settings) and knows nothing of how the
experience was gathered.
"""
