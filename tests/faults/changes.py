"""Faults: environments that change their process, and names outside of code pages."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from faults.bench import NO_EFFECT, SURVIVED, Accepted, Bench, Lost, differences, require_history
from faults.changing import CHANGES
from faults.processes import ENDING, FAULTS, error_line

UPDATES = 12
SMALL = (
    "--memory gru --memory-options hidden_size=4 --ppo.num-envs 2 --ppo.rollout-length 8 "
    "--ppo.sequence-length 8 --ppo.minibatches 1 --ppo.epochs 1 --log-every 4 "
    f"--steps {16 * UPDATES}"
).split()
NAMES = [
    "日本",
    "éà",
    "a b",
    "-x",
    "'",
    "$(date)",
    "100%",
    "[red]",
    "a\tb",
    "😀",
    "con",
    "x" * 255,
]
NO_NAMES = ["..", ".", "a/b", "[/red]", "x" * 256, "\udcff\udcfe", " a", "a\n"]
ENCODINGS = ["cp1252", "ascii", "utf-8", "latin-1", "cp932"]


def change_of_the_process(bench: Bench, dice: random.Random) -> str:
    """An environment changes folder or precision, exits, leaves threads or forks: same bits.

    The command ends by itself, with the code 0 of a complete run, and leaves no process.
    """
    what, when = dice.choice(list(CHANGES)[1:]), dice.choice(["build", "reset", "step", "close"])
    once = "" if what in ("chdir", "x64") else str(bench.path / f"armed-{bench.trials}")
    processes = dice.choice(["0", "0", "2"])
    plain = bench.path / "unchanged"
    if not plain.exists():
        _command(bench, ["train", *_changing("nothing", "build", ""), "--name", plain.name])
    name = bench.new_name()
    words = [*_changing(what, when, once), "--host.processes", processes, "--name", name]
    code, said = _command(bench, ["train", *words])
    if code == 2 and (what, when) == ("exit", "build") and "while it was built" in said:
        return error_line(said)  # before there is a run
    if code or "Traceback" in FAULTS.sub("", said):
        raise RuntimeError(f"{what} in {when}, {processes} processes: code {code}: {said}")
    require_history(bench.path / name, UPDATES, 4)
    if once and not Path(once).exists():
        return NO_EFFECT
    if "reopened" in said:
        return SURVIVED  # with other episodes
    if different := differences(bench.path / name, plain):
        raise Accepted(f"{what} in {when}, {processes} processes: {different}")
    return SURVIVED


def name_and_locale(bench: Bench, dice: random.Random) -> str:
    """A run's name outside of a code page: trained, listed and evaluated; or refused."""
    good = dice.random() < 0.7
    name, encoding = dice.choice(NAMES if good else NO_NAMES), dice.choice(ENCODINGS)
    place = bench.path / bench.new_name()
    train = ["train", *_changing("nothing", "build", ""), f"--name={name}"]
    commands = [train, ["evaluate", str(place / name), "--episodes", "2", "--trust"], ["runs"]]
    for words in commands:
        words = words if words[0] == "evaluate" else [*words, "--run-dir", str(place)]
        code, said = _command(bench, words, PYTHONIOENCODING=encoding)
        if "Traceback" in said or code not in ((0,) if good else (2,)):
            raise RuntimeError(f"{words[0]} of {name!r} in {encoding}: code {code}: {said}")
        if not good:
            return error_line(said)
    if not (place / name / "summary.json").exists():
        raise Lost(f"{name!r} in {encoding}: no run")
    return SURVIVED


def _changing(what: str, when: str, once: str) -> list[str]:
    options = [f"what={what}", f"when={when}", *([f"once={once}"] if once else [])]
    return ["--env", "faults.changing:Changing", "--env-options", *options, *SMALL]


def _command(bench: Bench, words: list[str], **environment: str) -> tuple[int, str]:
    """Runs a command in the campaign's folder with a piped output; its code and output."""
    bench.temporary.mkdir(exist_ok=True)
    place = [] if "--run-dir" in words or words[0] == "evaluate" else ["--run-dir", "."]
    process = subprocess.Popen(
        [sys.executable, "-m", "clew", *words, *place],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=bench.path,
        env={**os.environ, "TMPDIR": str(bench.temporary), **environment},
    )
    try:
        said = process.communicate(timeout=ENDING)[0]
    except subprocess.TimeoutExpired as error:
        raise Lost(f"{' '.join(words)}: it did not end, or left a process") from error
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return process.returncode, said.decode(errors="replace")
