"""The building blocks of the memories."""
