"""The parts that memories are composed of."""
