"""Large memory pages that the process keeps, for commands that compute: same results, faster."""

import os
import re
import sys
from pathlib import Path

COMPUTING = (
    *("bench", "compare", "demo", "evaluate"),
    *("inspect", "study", "sweep", "train", "watch"),
)
"""Commands that hold large arrays."""

_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_VARIABLE = "GLIBC_TUNABLES"
# Allocations of all sizes come from heaps, which are never given back. Each thread has its own
# heap: with a shared one, XLA's threads would wait for each other while they compile.
_SETTINGS = ("hugetlb=1", "mmap_max=0", f"trim_threshold={2**36}")
SETTING = ":".join(f"glibc.malloc.{setting}" for setting in _SETTINGS)
"""The value of GLIBC_TUNABLES."""
_FIRST = (2, 35)  # the first GNU C library with the setting


def take_large_pages(command: str) -> None:
    """Restarts this process with large pages that it keeps, if Linux gives them on request.

    XLA allocates its buffers at every call of a program. The system would hand them out page by
    page, each filled with zeros, and take them back after the call. With pages of 2 MB instead of
    4 KB learning took 16 to 23% less time on the machine that clew was measured on, and a quarter
    of the remaining time went into zeros (`docs/benchmarks.md`). The C library reads its settings
    before Python starts, hence the restart; the process keeps its id, its files and its arguments.
    If GLIBC_TUNABLES is already set, nothing is changed.
    """
    if command in COMPUTING and _VARIABLE not in os.environ and is_possible():
        os.environ[_VARIABLE] = SETTING
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def is_possible(mode: Path = _MODE) -> bool:
    """Whether the system gives large pages on request, and the C library can request them."""
    try:
        on_request = "[madvise]" in mode.read_text()
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError, AttributeError):
        return False
    version = re.fullmatch(r"glibc (\d+)\.(\d+).*", library)
    return on_request and version is not None and tuple(map(int, version.groups())) >= _FIRST
