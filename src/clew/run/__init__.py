"""Runs: settings, updates, programs, checkpoints, logs, evaluation."""
