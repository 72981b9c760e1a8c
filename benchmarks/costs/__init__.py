"""The costs of Pramanik (2023): its conventions, its figures, and what is counted of both."""
