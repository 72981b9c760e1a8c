"""The study of Makkink (2021)."""
