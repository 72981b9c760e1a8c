"""Training whose actors go on acting while the learner learns."""
