"""The costs of Pramanik (2023): its conventions, its figures, and the counts made here."""
