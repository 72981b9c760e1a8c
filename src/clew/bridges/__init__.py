"""Environments of other packages as tasks of clew."""
