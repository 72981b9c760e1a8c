"""The stages of `benchmarks/gpu.sh`: their commands exist, and they resume correctly."""

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from clew.cli.bench import BenchCommand
from clew.cli.check import CheckCommand
from clew.cli.parse import parse
from clew.cli.train import TrainCommand, default_command
from clew.run.build import make_parts
from scripts import script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    """The script as a module."""
    return script("benchmarks/gpu.py")


@pytest.mark.parametrize("tiny", [False, True])
def test_every_stage_is_a_command(gpu: ModuleType, tiny: bool, tmp_path: Path) -> None:
    """Its options parse, and no two stages write the same result."""
    stages = gpu.stages(tmp_path, tiny)
    assert len({stage.path(tmp_path) for stage in stages}) == len(stages)
    for stage in stages:
        if stage.module != "clew":
            module = importlib.import_module(stage.module)
            parser = module.options_of()
            assert module.plan_of(parser.parse_args(stage.args))
            continue
        command, *args = stage.args
        if command == "train":
            default = default_command(args)
            kept = parse(TrainCommand, args, command=command, about="", default=default)
            make_parts(kept.config)
        else:
            kind = {"bench": BenchCommand, "check": CheckCommand}[command]
            parse(kind, args, command=command, about="")


def test_what_has_a_result_is_not_run_again(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure and a stage out of time have no result; a finding is one."""
    programs = {
        "fine": "print('{}')",
        "finding": "print('{}'); raise SystemExit(1)",
        "fails": "raise SystemExit(2)",
        "crashes": "raise RuntimeError",
        "slow": "import time; time.sleep(60)",
    }
    monkeypatch.setattr(
        gpu.Stage, "command", lambda stage, output: [sys.executable, "-c", programs[stage.name]]
    )
    stages = [
        gpu.Stage("fine", (), 60, alone=False),
        gpu.Stage("finding", (), 60, finding=True),
        gpu.Stage("fails", (), 60),
        gpu.Stage("crashes", (), 60, finding=True),
        gpu.Stage("slow", (), 0.5),
    ]
    monkeypatch.setattr(gpu, "LEAST", 0.0)
    logged: list[str] = []
    left = gpu.Runner(tmp_path, 60, logged.append).run(stages, 2)
    assert [stage.name for stage in left] == ["fails", "crashes", "slow"]
    records = [json.loads(line) for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert {r["stage"]: r["exit_code"] for r in records} == {
        "fine": 0,
        "finding": 1,
        "fails": 2,
        "crashes": 1,
        "slow": None,
    }
    assert not list(tmp_path.glob("*.part"))
    programs["fails"] = "print('{}')"
    logged.clear()
    assert [s.name for s in gpu.Runner(tmp_path, 60, logged.append).run(stages[:3], 2)] == []
    assert logged[:2] == ["fine: has its result", "finding: has its result"]


@pytest.mark.slow
def test_a_try_of_everything(tmp_path: Path) -> None:
    """Every stage runs for real, at sizes that an idle CPU computes in a minute or two."""
    command = [str(ROOT / "benchmarks" / "gpu.sh"), "--tiny", "--budget", "3600"]
    command += ["--output", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads((tmp_path / "machine.json").read_text())["platform"]
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.stdout.count("has its result") == run.stdout.count("exit code 0")
