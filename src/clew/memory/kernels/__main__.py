"""Compiles the kernels ahead of their first use: python -m clew.memory.kernels.

Ends with 1 and the reason where there are none.
"""

import sys

from clew.memory.kernels import why_not

if __name__ == "__main__":
    sys.exit(why_not() or print("clew's kernels are compiled"))
