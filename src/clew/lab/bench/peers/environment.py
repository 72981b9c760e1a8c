"""Where the other libraries live: a virtual environment of their own, made from a lock file."""

import subprocess
import sys
from pathlib import Path

from clew.errors import UserError

ROOT = Path(__file__).resolve().parents[5]
FOLDER = ".venv-peers"


def workers_folder() -> Path:
    """The folder of the programs that run libraries.

    Raises:
        UserError: if clew does not run from a checkout of its repository.
    """
    folder = ROOT / "benchmarks" / "peers"
    if not folder.is_dir():
        raise UserError(
            "--peers needs a checkout of clew's repository, because what it runs and the lock file "
            f"of the other libraries are not installed with clew; there is no {folder}"
        )
    return folder


def peers_python() -> Path:
    """The interpreter of the other libraries' environment, which is made if it is not there.

    Raises:
        UserError: if it cannot be made; what went wrong was printed.
    """
    workers_folder()
    folder = ROOT / FOLDER
    if not (folder / ".installed").exists():
        print(
            f"{FOLDER} is not there yet: making it, some 2 minutes and 2 GB, once", file=sys.stderr
        )
        command = ["sh", "tools/make_peers.sh", FOLDER, sys.executable]
        if subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode:
            raise UserError(
                f"the other libraries could not be installed into {FOLDER}; the reason is above. "
                "`make bench-peers` tries again"
            )
    return folder / "bin" / "python"
