"""The learning algorithms."""
