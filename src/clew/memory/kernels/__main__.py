"""Compiles the kernels before their first use: python -m clew.memory.kernels.

Exits with 1 and the reason if there are none.
"""

import sys

from clew.memory.kernels import why_not

if __name__ == "__main__":
    sys.exit(why_not() or print("clew's kernels are compiled"))
