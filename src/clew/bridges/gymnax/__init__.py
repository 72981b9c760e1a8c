"""Environments that follow gymnax's interface."""
