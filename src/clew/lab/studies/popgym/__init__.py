"""Which memory for POPGym's tasks: every memory, the same agent around it."""
