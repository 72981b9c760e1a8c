"""Asynchronous training: actors act while the learner learns."""
