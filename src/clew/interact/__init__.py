"""Acting in tasks: rollouts, whole episodes, and a policy that keeps its state."""
