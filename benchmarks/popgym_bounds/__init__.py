"""What can be earned in POPGym's tasks: best returns exactly, or from below and from above."""
