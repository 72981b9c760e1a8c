"""popjaxrl's PPO with a GRU on clew's own tasks, beside clew's PPO."""
