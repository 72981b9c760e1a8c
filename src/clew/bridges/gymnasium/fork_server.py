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


def _remove_folder() -> None:
    server: Any = forkserver._forkserver
    folder = Path(server._forkserver_address).parent
    if folder.name.startswith("pymp-") and folder.parent == Path(tempfile.gettempdir()):
        shutil.rmtree(folder, ignore_errors=True)


for number in IGNORED:
    signal.signal(number, signal.SIG_IGN)
# Its children may be anybody's: those of this package ignore the signals by themselves.
os.register_at_fork(after_in_child=_restore_signals)
atexit.register(_remove_folder)
