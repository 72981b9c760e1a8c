"""Other people's environments as clew's tasks."""
