"""Loggers with the real tensorboardX and wandb, if they are installed (see docs/training.md)."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.run.config import TrainConfig
from clew.run.loggers import WandbConfig, make_logger
from clew.run.progress import Background
from small_run import STEPS_PER_UPDATE, Watch, small_config

# Warnings of these packages, such as those of how protobuf was built, do not concern clew.
pytestmark = pytest.mark.filterwarnings("ignore")


def row(update: int) -> dict[str, Any]:
    return {"update": update, "steps": 10 * update, "loss": [0.5 * update], "success": [None]}


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    """The curve as TensorBoard itself reads it."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder))
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(name)]


def test_tensorboard_reads_each_row_once(tmp_path: Path) -> None:
    """The second writer continues from an earlier row than the first one's last."""
    pytest.importorskip("tensorboardX")
    for rows, more in (([], [1, 2, 3]), ([row(1)], [2, 3, 4])):
        logger = make_logger("tensorboard")
        logger.start(tmp_path, TrainConfig(), rows)
        for update in more:
            logger.row(row(update))
        logger.close()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    assert curve(tmp_path / "tensorboard", "loss") == [(10 * n, 0.5 * n) for n in (1, 2, 3, 4)]


def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    """Simulated by a limit on the size of files."""
    pytest.importorskip("tensorboardX")
    logger = Background("tensorboard", make_logger("tensorboard"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        logger.start(tmp_path, TrainConfig(), [])
        for update in range(1, 1000):
            logger.row(row(update))
        logger.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large" in logger.failure() and logger.failure() == ""


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of a run, one id, and every row logged."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    watch = Watch()
    config = small_config(
        tmp_path,
        steps=24 * STEPS_PER_UPDATE,
        loggers=("wandb",),
        wandb=WandbConfig(mode="offline"),
    )
    path = clew.train(config, progress=watch).path
    clew.resume_run(path, steps=40 * STEPS_PER_UPDATE, progress=watch)
    assert not [text for text in watch.messages if "warning" in text]
    state = json.loads((path / "wandb.json").read_text())
    assert state["update"] == 40
    parts = list((path / "wandb").glob(f"offline-run-*-{state['id']}"))
    assert len(parts) == 2
