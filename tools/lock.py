"""Renews a lock file: exact versions and hashes for several Pythons on any platform.

    python tools/lock.py           requirements.lock, for Python 3.11 to 3.14
    python tools/lock.py newest    tools/newest.lock, for Python 3.12 to 3.14

The resolver (uv) is installed into a temporary environment, so that users of clew never have to
download it.
"""

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = {
    # One version of a package for all Pythons wherever possible: the tested version is the one
    # that runs.
    "requirements": [
        *("--output-file", "requirements.lock", "--custom-compile-command", "make lock"),
        *("--python-version", "3.11", "--fork-strategy", "fewest"),
    ],
    # What pip takes, the newest version for each Python; Python 3.11 gets no new NumPy and JAX.
    "newest": [
        *("--output-file", "tools/newest.lock", "--custom-compile-command", "make lock-newest"),
        *("--python-version", "3.12", "--fork-strategy", "requires-python", "--extra", "onnx"),
        "-",  # and what runs policy.onnx
    ],
}


def main(name: str) -> int:
    """Resolves the dependencies of pyproject.toml anew and writes the lock file."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv>=0.9"], check=True)
        command = [python, "-m", "uv", "pip", "compile", "pyproject.toml", *LOCKS[name]]
        command += ["--extra", "dev", "--extra", "docs", "--upgrade", "--quiet", "--universal"]
        # No annotations and no header command, so that nothing of the machine gets into the file.
        command += ["--generate-hashes", "--no-annotate"]
        return subprocess.run(command, cwd=ROOT, input="onnxruntime", text=True).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", choices=LOCKS, default="requirements")
    sys.exit(main(parser.parse_args().name))
