"""Agents and how they learn: network, trajectory, returns, loss and gradient step.

Everything here is a function of (agent, trajectory, settings) and does not depend on how the
experience was gathered.
"""
