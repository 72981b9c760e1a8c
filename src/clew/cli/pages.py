"""Large memory pages for the commands that compute: the same numbers, faster."""

import os
import re
import sys
from pathlib import Path

COMPUTING = ("bench", "demo", "evaluate", "inspect", "study", "train", "watch")
"""Commands that hold large arrays."""

_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_VARIABLE, _SETTING = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"
_FIRST = (2, 35)  # the GNU C library that knows the setting


def take_large_pages(command: str) -> None:
    """Restarts this process with large pages, where Linux gives them on request.

    XLA's buffers are allocated at every call, page by page: with pages of 2 MB in place of 4 KB
    learning took 16 to 23% less time on the machine that clew was measured on. The C library
    reads its setting before Python starts, hence the restart; the process keeps its id, its files
    and its arguments. If GLIBC_TUNABLES is already set, nothing is changed.
    """
    if command in COMPUTING and _VARIABLE not in os.environ and is_possible():
        os.environ[_VARIABLE] = _SETTING
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
