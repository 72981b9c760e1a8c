"""Compiles the kernels ahead of their first use: python -m clew.memory.kernels."""

from clew.memory.kernels import why_not

if __name__ == "__main__":
    print(why_not() or "clew's kernels are compiled")
