"""The T-Maze study of Pramanik (2023), section 5.1."""
