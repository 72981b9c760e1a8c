"""The runs into which faults are injected, and checks of the outcome."""

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clew.agents.learners.a2c import A2CConfig
from clew.agents.learners.ppo import PPOConfig
from clew.agents.learners.r2d2 import R2D2Config
from clew.agents.network import NetworkConfig
from clew.errors import UserError
from clew.interact.task import HostConfig
from clew.run import checkpoint, folder
from clew.run.config import TrainConfig
from clew.run.metrics import Row, read_metrics
from clew.run.progress import Progress, Quiet, Report
from clew.run.runner import TrainingInterrupted
from clew.run.train import train
from small_run import BRIEF_REPLAY, newest

PER_UPDATE = 4 * 8
SHORT, LONG, HOSTED = 40, 2_500, 200
"""Updates of the runs of this process, and of those of processes that are killed: compiled ones,
and those on Gymnasium environments."""
SURVIVED, NO_EFFECT = "survived", "no effect"
"""Returned by a kind if the run continued or was resumed intact, or if nothing had changed."""
CLOCK = ("seconds", "rate")
SMALL_ARELIT = {"hidden_size": 8, "num_layers": 1, "num_heads": 1, "head_size": 4}
SETTINGS: dict[str, Any] = {
    "a2c": A2CConfig(num_envs=4, rollout_length=8),
    "ppo": PPOConfig(num_envs=4, rollout_length=8, sequence_length=4, minibatches=1, epochs=1),
    "r2d2": R2D2Config(**BRIEF_REPLAY),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "a2c": {},
    "ppo": {"algorithm": "ppo"},
    "seeds": {"seeds": 2, "memory": "arelit", "memory_options": SMALL_ARELIT},
}
"""Kinds of compiled runs that are killed."""


class Lost(Exception):
    """Something that was computed is missing, or there twice."""


class Accepted(Exception):
    """Something wrong was accepted."""


class Watch(Progress):
    """A listener that keeps messages, and acts once after a number of updates.

    Args:
        update: that number.
        action: what it calls.
        before: a listener that gets everything first.
    """

    def __init__(
        self,
        update: int = 0,
        action: Callable[[], object] = lambda: None,
        before: Progress | None = None,
    ):
        self._update, self._action = update, action
        self._before = before or Quiet()
        self._waiting = True
        self.messages: list[str] = []

    def start(self, path: Path, config: TrainConfig) -> None:
        self._before.start(path, config)

    def phase(self, name: str) -> None:
        self._before.phase(name)

    def report(self, report: Report) -> None:
        self._before.report(report)
        if self._waiting and report.steps >= self._update * PER_UPDATE:
            self._waiting = False
            self._action()

    def message(self, text: str) -> None:
        self._before.message(text)
        self.messages.append(text)

    def close(self) -> None:
        self._before.close()


@dataclass
class Bench:
    """A folder for a campaign's runs, and the undisturbed runs to compare them with.

    Args:
        path: the folder.
    """

    path: Path
    trials: int = field(default=0)

    def compiled(self, name: str, updates: int, **changes: Any) -> TrainConfig:
        """A compiled task's run: resumed in any way, it equals the undisturbed one bit for bit."""
        algorithm = changes.get("algorithm", "a2c")
        config = TrainConfig(
            env="tmaze",
            env_options={"corridor_length": 3},
            memory="gru",
            memory_options={"hidden_size": 4},
            network=NetworkConfig(head_size=4),
            algorithm=algorithm,
            **{algorithm: SETTINGS[algorithm]},
            steps=updates * PER_UPDATE,
            log_every=4 if updates == SHORT else 50,
            checkpoint_seconds=0.0,
            run_dir=str(self.path),
            name=name,
        )
        return replace(config, **changes)

    def hosted(
        self, name: str, armed: Path, processes: int, updates: int = SHORT, **changes: Any
    ) -> TrainConfig:
        """A run on environments, one of which fails once the file `armed` exists."""
        return self.compiled(
            name,
            updates,
            **{
                "env": "faults.environments:Faulty",
                "env_options": {"armed": str(armed)},
                "host": HostConfig(processes=processes, timeout=2.0, restarts=2),
                **changes,
            },
        )

    @property
    def temporary(self) -> Path:
        """A folder for temporary files of other processes; its path is short, for sockets."""
        return self.path / "tmp"

    def new_name(self) -> str:
        """A name that no run of the campaign has had."""
        self.trials += 1
        return f"trial-{self.trials}"

    @cached_property
    def short(self) -> Path:
        """The folder of an undisturbed short run."""
        return train(self.compiled("short", SHORT), progress=Quiet()).path

    @cached_property
    def foreign(self) -> Path:
        """The folder of another run, of the same shapes."""
        return train(self.compiled("foreign", SHORT, seed=1), progress=Quiet()).path

    def long(self, variant: str) -> Path:
        """The folder of an undisturbed long run of one of `VARIANTS`."""
        path = self.path / f"long-{variant}"
        if not path.exists():
            train(self.compiled(path.name, LONG, **VARIANTS[variant]), progress=Quiet())
        return path

    def tidy(self) -> None:
        """Removes what trials have left; the undisturbed runs stay."""
        for path in self.path.iterdir():
            if path.name.startswith("trial-"):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith("armed-"):
                path.unlink(missing_ok=True)

    def copy(self) -> Path:
        """A copy of the short run, to be damaged."""
        return Path(shutil.copytree(self.short, self.path / self.new_name()))

    def interrupted(self, dice: random.Random, algorithm: str = "a2c") -> Path:
        """The folder of a short run that has stopped somewhere, with some checkpoints."""
        update = dice.randrange(12, SHORT - 4, 4)
        path = self.path / f"stopped-{algorithm}-{update}"
        if not path.exists():
            begin(self.compiled(path.name, SHORT, algorithm=algorithm), update)
        return Path(shutil.copytree(path, self.path / self.new_name()))

    def require_same(self, path: Path, whole: Path) -> None:
        """Raises `Lost` unless a run ended with the rows and the bits of another."""
        require_rows(path, read_metrics(whole))
        if different := differences(path, whole):
            raise Lost(f"{path}: {different} differ")

    def resume(self, path: Path, whole: Path) -> None:
        """Resumes a run, which must end like the undisturbed one."""
        train(resume=path, progress=Quiet())
        self.require_same(path, whole)


def begin(config: TrainConfig, updates: int = 1) -> Path:
    """Trains a few updates; returns the run's folder."""

    def stop() -> None:
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt, TrainingInterrupted):
        train(config, progress=Watch(updates, stop))
    return Path(config.run_dir) / config.name


def last_state(path: Path) -> dict[str, np.ndarray]:
    """Every array of a run's newest checkpoint, including its learner's replay."""
    found = checkpoint.read(newest(path))
    replay = checkpoint.read_replay(found).leaves
    return found.leaves | {f"replay{name}": leaf for name, leaf in replay.items()}


def differences(path: Path, whole: Path) -> str:
    """The first arrays whose bits differ between the newest checkpoints of two runs."""
    state, expected = last_state(path), last_state(whole)
    different = [n for n in expected if state[n].tobytes() != expected[n].tobytes()]
    return ", ".join(different[:3])


def untimed(rows: list[Row]) -> list[Row]:
    """Rows without values that depend on the clock."""
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in rows]


def require_rows(path: Path, expected: list[Row]) -> None:
    """Raises `Lost` unless a run has these rows."""
    rows = untimed(read_metrics(path))
    if rows != untimed(expected):
        raise Lost(f"{path}: {len(rows)} rows of {len(expected)}, or others")


def require_history(path: Path, updates: int, log_every: int) -> None:
    """Raises `Lost` unless a run has every row once, up to its last update."""
    found = [row["update"] for row in read_metrics(path)]
    if found != list(range(log_every, updates + 1, log_every)):
        raise Lost(f"{path}: rows of updates {found}")


def require_refused(action: Callable[[], Any], what: str) -> str:
    """Does something that must be refused with a line; raises `Accepted` if it is not."""
    try:
        action()
    except UserError as error:
        return str(error)
    raise Accepted(what)


def damage(path: Path, dice: random.Random) -> str:
    """Damages a file as a disk might; returns how."""
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data))
    how = dice.choice(["flip", "cut", "zeros", "noise"])
    if how == "flip":
        data[at] ^= 1 << dice.randrange(8)
    if how == "cut":
        del data[at:]
    if how in ("zeros", "noise"):
        length = min(dice.randrange(1, 200), len(data) - at)
        data[at : at + length] = bytes(length) if how == "zeros" else dice.randbytes(length)
    path.write_bytes(bytes(data))
    return f"{how} at byte {at} of {path.name}"


def config_of(path: Path) -> Any:
    """The settings of a run's folder as JSON values."""
    return json.loads((path / folder.CONFIG).read_text(encoding="utf-8"))["config"]
