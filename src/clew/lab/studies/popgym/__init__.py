"""Which memory for POPGym's tasks: every memory in the same agent."""
