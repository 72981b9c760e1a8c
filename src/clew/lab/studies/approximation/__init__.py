"""How well AReLiT approximates its state: Figure 4.1 of Pramanik (2023), bounds, better waves.

`clew study approximation` runs it. Nothing is trained; the documentation's page on the
approximation has the proofs.
"""
