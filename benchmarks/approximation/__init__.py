"""How well AReLiT approximates its state: Figure 4.1 of Pramanik (2023), bounds, better waves."""
