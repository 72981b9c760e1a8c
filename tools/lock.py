"""Renews requirements.lock: exact versions and hashes for Python 3.11 to 3.14 on any platform.

The resolver (uv) is installed into a temporary environment, so that users of clew never have to
download it.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Resolves the dependencies of pyproject.toml anew and writes the lock file."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv>=0.9"], check=True)
        command = [python, "-m", "uv", "pip", "compile", "pyproject.toml"]
        command += ["--output-file", "requirements.lock", "--upgrade", "--quiet"]
        command += ["--universal", "--python-version", "3.11", "--extra", "dev", "--extra", "docs"]
        # One version of a package for all Pythons wherever possible: the tested version is the one
        # that runs. No annotations and no header command, so that nothing of the machine gets into
        # the file.
        command += ["--fork-strategy", "fewest", "--generate-hashes", "--no-annotate"]
        command += ["--custom-compile-command", "make lock"]
        sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
