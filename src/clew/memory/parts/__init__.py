"""What the memories are made of."""
