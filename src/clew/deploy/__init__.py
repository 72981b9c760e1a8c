"""A trained policy as files that need no JAX."""
