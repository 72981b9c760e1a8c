"""For the fork server alone, which imports this first: it outlives signals, and cleans up.

The server makes the worker processes and tells their parent when they end, so a signal to a whole
group (Ctrl-C, Slurm, a container) must not end it: its parent would take all workers for dead. It
ends when the last process that it is for does. A parent that was killed leaves a folder with the
server's socket in it, which the server then removes.
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
    """Says what ends this process or one that it begins, unless its parent has given up.

    That one has said why. It breaks a request off, and its semaphores, which have no file, go.
    """
    if kind is EOFError or (kind is FileNotFoundError and error.filename is None):
        return
    sys.__excepthook__(kind, error, trace)


def _remove_folder() -> None:
    if "last_type" in vars(sys):
        return  # the server itself broke, as where descriptors ran out: its parent may go on
    server: Any = forkserver._forkserver
    folder = Path(server._forkserver_address).parent
    if folder.name.startswith("pymp-") and folder.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(folder, ignore_errors=True)


for number in IGNORED:
    signal.signal(number, signal.SIG_IGN)
sys.excepthook = _unless_broken_off
# Its children may be anybody's: those of this package ignore the signals by themselves.
os.register_at_fork(after_in_child=_restore_signals)
atexit.register(_remove_folder)
