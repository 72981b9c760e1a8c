"""The Memory Maze study of Pramanik (2023), section 5.2."""
