"""Only for the fork server, which imports this first: it survives signals and cleans up.

The server makes the worker processes and tells their parent when they end. A signal to a whole
process group (Ctrl-C, Slurm, a container) must not end it, because its parent would take all
workers for dead. It ends with the last process that uses it. A parent that was killed leaves a
folder with the server's socket, which the server then removes.
"""

import atexit
import os
import shutil
import signal
import sys
import tempfile
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from clew.bridges.gymnasium.processes import stopping_signals

# The server itself ignores Ctrl-C, and restores that in its children.
IGNORED = [number for number in stopping_signals() if number != signal.SIGINT]


def _restore_signals() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)


def _unless_broken_off(kind: Any, error: Any, trace: Any) -> None:
    """Prints the exception that ends this process or a child, unless the parent has given up.

    In that case the parent has already reported the reason. It breaks off its request, and its
    semaphores, which have no files, vanish.
    """
    if kind is EOFError or (kind is FileNotFoundError and error.filename is None):
        return
    sys.__excepthook__(kind, error, trace)


def _remove_folder() -> None:
    if "last_type" in vars(sys):
        return  # the server itself failed, for example without file descriptors; its parent lives
    server: Any = forkserver._forkserver
    folder = Path(server._forkserver_address).parent
    if folder.name.startswith("pymp-") and folder.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(folder, ignore_errors=True)


for number in IGNORED:
    signal.signal(number, signal.SIG_IGN)
sys.excepthook = _unless_broken_off
# Its children may run any code; those of this package ignore the signals themselves.
os.register_at_fork(after_in_child=_restore_signals)
atexit.register(_remove_folder)
