"""Runs: settings, rollout, the compiled loop, checkpoints, records, evaluation."""
