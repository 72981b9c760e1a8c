"""A run's folder from another person: every command, and the table in docs/security.md."""

import errno
import json
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.cli import run
from clew.errors import UserError
from clew.files import write_json
from clew.lab.grid import Evaluation, Setting, Study
from clew.lab.grid.results import write_study
from clew.output import printable
from clew.report.curves import plot_runs
from clew.report.document import Chart, Panel
from clew.report.figures import save_chart
from clew.run import folder, start, trust
from clew.run.asynchronous.settings import AsyncConfig
from clew.run.checkpoint import Identity
from clew.run.progress import Quiet
from clew.run.trust import named_code

TABLE = re.findall(
    r"^\| `(clew.*)` \| (refused|shown) \|$",
    (Path(__file__).parents[1] / "docs" / "security.md").read_text(),
    re.MULTILINE,
)
FORMS: dict[str, dict[str, Any]] = {
    "a function": {"env": "os:system", "env_options": {"command": "touch MARKER"}},
    "a module": {"env": "evil:make", "env_options": {}},
    "a module of Gymnasium's": {"env": "gymnasium:evil:Evil-v0", "env_options": {}},
    "a module of gymnax's": {"env": "gymnax:evil:make", "env_options": {}},
    "a module of PettingZoo's": {"env": "pettingzoo:evil:make", "env_options": {}},
    "a name in options": {
        "env": "gymnasium:GymV26Environment-v0",
        "env_options": {"env_id": "evil:Evil-v0"},
    },
    "a cluster": {
        "env": "gymnasium:CartPole-v1",
        "env_options": {},
        "runner": "async",
        "asynchronous": AsyncConfig(ray="ray://127.0.0.1:9"),
    },
    "a memory": {"memory": "evil:make", "memory_options": {"size": 3}},
    "an encoder": {"network": clew.NetworkConfig(encoder="evil:make")},
    "a learner": {"algorithm": "evil:make", "learner_options": {"num_envs": 2}},
}
MODULE = "open('MARKER', 'w').close()\n\ndef make(**options): raise SystemExit('ran')\n"


def write_run(path: Path, **settings: Any) -> None:
    """A folder whose author made sure that every checksum is right."""
    path.mkdir(parents=True)
    # If the algorithm is missing, the task is imported to choose one; this author has set it.
    others = {"memory": "none", "memory_options": {}, "algorithm": "a2c"}
    config = clew.TrainConfig(**{"name": path.name, **others, **settings})
    folder.write_config(path, config, Identity("ab", (config.digest(),)))
    row = {"update": 5, "steps": 10, "seconds": 1.0, "episodes": [1], "return": [1.0]}
    (path / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def write_study_of(path: Path, form: dict[str, Any], name: str = "a") -> None:
    """A study's folder whose settings, memories and tasks name code."""
    path.mkdir()
    study = Study(
        name="os:system",
        models={name: clew.TrainConfig(memory="none", memory_options={})},
        settings={name: Setting(form.get("env", "tmaze"), form.get("env_options", {}))},
        seeds=(0,),
        steps=40,
        evaluation=Evaluation(episodes=10),
        score="return",
    )
    study = replace(study, memories={"evil": "evil:make"}, tasks={"evil": "evil:make"})
    write_study(path, study)
    curve = {"steps": [10], "episodes": [5], "return": [0.0]}
    row = {"model": name, "setting": name, "seed": 0, "mean": 0.5, "score": "return", "steps": 40}
    row |= {
        "curve": curve,
        "parameters": 3,
        "seconds": 1.0,
        "finished": "2026-01-02T03:04:05+00:00",
    }
    row |= {"pack": {"compile": 1.0, "train": 2.0, "evaluate": 1.0}, "versions": {}, "format": 1}
    (path / "results.jsonl").write_text(json.dumps(row | {"git_commit": "abc"}) + "\n")


@pytest.fixture
def gift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A function that writes folders of a kind, and a current folder with a module in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil.py").write_text(MODULE)

    def write(form: str) -> Path:
        write_run(tmp_path / "runs" / "gift", **FORMS[form])
        write_study_of(tmp_path / "study", FORMS[form])
        return tmp_path / "runs" / "gift"

    return write


def call(command: str, path: Path) -> tuple[int, str]:
    """Runs a line of the table: its exit code and its error."""
    if command.startswith("clew."):
        with pytest.raises(UserError) as error:
            eval(command, {"clew": clew, "RUN": str(path)})
        return 2, f"error: {error.value}"
    words = {"RUN": str(path), "PARENT": "runs", "STUDY": "study", "PICTURE": "a.png"}
    words["PAGE"] = "page"
    return run([words.get(word, word) for word in shlex.split(command)[1:]]), ""


@pytest.mark.parametrize("form", FORMS)
def test_the_page_is_right(form: str, gift: Callable[[str], Path], capsys: Any) -> None:
    """No command runs code that a folder names; each prints what its line of the table says."""
    path = gift(form)
    (code,) = named_code(folder.read_config(path))
    assert len(TABLE) == 14
    for command, outcome in TABLE:
        if outcome == "shown" and form != "a function":
            continue  # whatever the name is, it is only text
        exit_code, error = call(command, path)
        error = error or capsys.readouterr().err.strip()
        if outcome == "refused":
            assert exit_code == 2, command
            assert error.startswith(f"error: {path} would run {code}"), command
            assert "\n" not in error and "--trust" in error and "trust=True" in error
        else:
            assert exit_code == 0, (command, error)
        assert "evil" not in sys.modules and not Path("MARKER").exists(), command


OWN = """
import gymnasium, numpy

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, length=2):
        self.length = length
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return numpy.zeros(1, numpy.float32), {}
    def step(self, action):
        self.time += 1
        return numpy.zeros(1, numpy.float32), 1.0, self.time >= self.length, False, {}
"""


def test_ones_own_run_needs_no_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After training here, it evaluates and resumes; elsewhere, or changed, it needs consent."""
    monkeypatch.setenv("CLEW_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_env.py").write_text(OWN)
    config = clew.TrainConfig(
        env="own_env:Own",
        memory="none",
        memory_options={},
        algorithm="a2c",
        a2c=clew.A2CConfig(num_envs=2, rollout_length=4),
        steps=8,
        run_dir="runs",
        name="own",
    )
    path = clew.train(config, progress=Quiet()).path
    assert clew.evaluate(path, episodes=2).per_seed["length"] == [2.0]
    clew.resume_run(path.resolve(), steps=16, progress=Quiet())

    shutil.copytree(path, "gift")
    with pytest.raises(UserError, match=r"gift would run 'own_env:Own' with the options \{\}"):
        clew.load("gift")
    clew.load("gift", trust=True)
    clew.load_policy("gift", trust=True)
    with pytest.raises(UserError, match="gift would run"):
        clew.resume_run("gift", steps=24)
    # A record inside the folder itself has no effect.
    shutil.copytree(tmp_path / "state", "gift/state")
    with pytest.raises(UserError, match="gift would run"):
        clew.load("gift")
    assert run(["train", "--resume", "gift", "--steps", "24", "--trust"]) == 0
    clew.load("gift")

    # The same path with other options is other code.
    folder.write_config(path, replace(config, env_options={"length": 3}))
    with pytest.raises(UserError, match=r"'own_env:Own' with the options \{'length': 3\}"):
        clew.load(path)
    for record in (tmp_path / "state" / "trusted").iterdir():
        record.unlink()
    with pytest.raises(UserError, match="gift would run"):
        clew.load("gift")


def test_consent_of_a_sweep_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker processes read the run to start from again."""
    monkeypatch.setenv("CLEW_STATE_DIR", str(tmp_path / "state"))
    gift = start.Start(None, None, "", tmp_path, clew.TrainConfig(loggers=("own_logger:Own",)))
    monkeypatch.setattr(start, "read_start", lambda parts, trust: gift)
    parts: Any = None
    start.read_shared_start(parts)
    with pytest.raises(UserError, match="would run 'own_logger:Own'"):
        trust.require(gift.path, gift.config, trust=False)
    start.read_shared_start(parts, trust=True)
    trust.require(gift.path, gift.config, trust=False)


def test_a_folder_cannot_leave_the_algorithm_to_its_task(gift: Callable[[str], Path]) -> None:
    """Choosing one would import the task; the earliest runs named none, although they had one."""
    path = gift("a module")
    text = json.loads((path / "config.json").read_text())
    text["config"]["algorithm"] = "auto"
    (path / "config.json").write_text(json.dumps(text))
    with pytest.raises(UserError, match="algorithm must name an algorithm, got 'auto'"):
        clew.load(path)
    del text["config"]["algorithm"], text["checksum"]
    (path / "config.json").write_text(json.dumps(text))
    with pytest.raises(UserError, match="gift would run 'evil:make'"):
        clew.load(path)
    assert "evil" not in sys.modules


HOSTILE = "\x1b\x9b\r<q>[red]$^$%s"
"""Text that a terminal, a browser, Rich, a formula or a format would interpret."""


def test_names_are_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Whatever names and texts a folder has, each command shows them escaped, or one line each."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / f"gift{HOSTILE}"
    form = {"env": HOSTILE, "env_options": {HOSTILE: HOSTILE}}
    write_run(path, **form, memory=HOSTILE, memory_options={HOSTILE: HOSTILE})
    write_study_of(tmp_path / "study", form, HOSTILE)
    for command, outcome in TABLE:
        if command.startswith("clew."):
            continue
        exit_code, _ = call(command, path)
        said = capsys.readouterr()
        assert exit_code == (0 if outcome == "shown" else 2), (command, said.err)
        assert printable(said.out + said.err) == said.out + said.err, command
        lines = said.err.splitlines()  # neither the task nor the memory exists
        assert exit_code == 0 or (lines[0].startswith("error: ") and len(lines) <= 2)
    (page,) = (tmp_path / "page").rglob("*.html")
    text = page.read_text(encoding="utf-8")
    assert "<q>" not in text and "&lt;q&gt;[red]$^$%s" in text


def test_a_message_shows_no_control_characters(tmp_path: Path) -> None:
    """Nor can long options push it out of sight."""
    options = {"a": "\x1b[2J\n\r", "b": "x" * 10_000}
    write_run(tmp_path / "gift", env="os:\x1b[2Jsystem", env_options=options)
    with pytest.raises(UserError) as error:
        clew.load(tmp_path / "gift")
    assert str(error.value).isprintable() and len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "env", ["tmaze", "gymnasium:CartPole-v1", "gymnasium:ALE/Pong-v5", "gymnax:X"]
)
def test_what_is_installed_needs_no_consent(env: str) -> None:
    """Registered tasks, and plain ids of packages."""
    assert named_code(clew.TrainConfig(env=env, env_options={})) == []


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Neither under a file's final name nor under its temporary one."""
    victim = tmp_path / "victim"
    victim.write_text("whole")
    own = [tmp_path / name for name in ("summary.json", "curve.png", "chart.svg")]
    for path in own:
        for name in (path.name, f".{path.name}.{os.getpid()}.writing", f"{path.name}.part"):
            (tmp_path / name).symlink_to(victim)
    write_json(own[0], {})
    rows = [{"steps": steps, "episodes": [1], "success": [0.5]} for steps in (5, 10)]
    plot_runs({"a": rows}, own[1])
    save_chart(Chart("chart", "", "", [Panel("", lambda axes: None)]), {}, tmp_path)
    assert victim.read_text() == "whole"
    assert all(path.is_file() and not path.is_symlink() for path in own)
    assert not list(tmp_path.glob("*.writing"))


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_mount_that_writes_out_no_folders(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused operations on such a mount are skipped; a broken disk is reported."""
    written_out = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(code, os.strerror(code))
        written_out(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    if code == errno.EIO:
        with pytest.raises(UserError, match="cannot write .*: Input/output error"):
            write_json(tmp_path / "a.json", {})
    else:
        write_json(tmp_path / "a.json", {})
        assert (tmp_path / "a.json").read_text() == "{}\n"
