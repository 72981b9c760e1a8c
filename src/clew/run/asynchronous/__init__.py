"""Training whose actors act while the learner learns."""
