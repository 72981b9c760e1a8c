"""The page on adding a learner works in a copy of the library: its file, its line, and a run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import clew

PAGE = Path(__file__).parents[2] / "docs" / "add-a-learner.md"
LINE = re.compile(r"^```text\n(    \"reinforce\": .*\n)```$", re.MULTILINE)
REGISTRY = re.compile(r"^(LEARNERS: .*?)^}", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_one_file_and_one_line_are_enough(tmp_path: Path) -> None:
    """Its options, a run, its settings in the run's folder, and an error for a mistake all work."""
    page = PAGE.read_text()
    shutil.copytree(Path(clew.__file__).parent, tmp_path / "clew")
    learners = tmp_path / "clew" / "agents" / "learners"
    code = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    (learners / "reinforce.py").write_text(code)
    registry, line = learners / "__init__.py", LINE.search(page)
    assert line is not None
    imported = "from clew.agents.learners.reinforce import Reinforce\n\n"
    text, count = REGISTRY.subn(rf"{imported}\1{line[1]}}}", registry.read_text())
    assert count == 1
    registry.write_text(text)

    def run(words: str, *, status: int = 0) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "clew", *words.split()],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert ended.returncode == status, ended.stderr
        return ended.stdout + ended.stderr

    train = "train --steps 256 --memory gru --memory-options hidden_size=8 --name toy --reinforce"
    run(f"{train}.num-envs 4 --reinforce.rollout-length 16 --algorithm reinforce")
    config = (tmp_path / "runs" / "toy" / "config.json").read_text()
    assert '"algorithm": "reinforce"' in config and '"reinforce": {' in config
    assert "num_envs must be an integer of at least 1, got 0" in run(
        f"{train}.num-envs 0 --algorithm reinforce", status=2
    )
