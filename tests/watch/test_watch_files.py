"""Videos as files, episodes in the terminal, and `clew watch` as a command."""

import io
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clew.cli import run
from clew.errors import UserError
from clew.run.checkpoint import list_checkpoints
from clew.run.load import load_agent
from clew.watch import Caption, Recording, Viewing, play, text_frame, watch_run, write_video
from clew.watch import video as video_module
from clew.watch.video import Palette
from small_run import TINY_GRU, train_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a GRU that has hardly learned anything."""
    return train_tiny(tmp_path_factory.mktemp("runs"), TINY_GRU)


def squares(count: int, size: int = 20) -> list[np.ndarray]:
    """Frames with a square that moves."""
    frames = [np.full((size, size + 10, 3), 255, np.uint8) for _ in range(count)]
    for place, frame in enumerate(frames):
        frame[4:8, place : place + 4] = (10, 20, 30)
    return frames


def durations(path: Path) -> list[float]:
    """The duration of every picture of a GIF, in milliseconds."""
    with Image.open(path) as image:
        found = []
        for index in range(getattr(image, "n_frames", 1)):
            image.seek(index)
            found.append(image.info["duration"])
        return found


def test_a_gif_has_the_frames_it_was_given(tmp_path: Path) -> None:
    """In their colours and durations, and with no other file in the folder."""
    out = write_video([squares(7), squares(4)], tmp_path / "new" / "a.gif", fps=12)
    assert [p.name for p in out.parent.iterdir()] == ["a.gif"]
    found = durations(out)
    assert len(found) == 11 and found[6] > 1500 and found[10] > 1500
    assert sum(found[:6]) == pytest.approx(500, abs=10)
    with Image.open(out) as image:
        for index, frame in enumerate(squares(7)):
            image.seek(index)
            assert np.array_equal(np.asarray(image.convert("RGB")), frame)
    write_video([squares(2)], out)
    assert len(durations(out)) == 2


def test_a_palette_keeps_what_is_frequent_and_is_near_the_rest() -> None:
    random = np.random.default_rng(0)
    noisy = random.integers(0, 256, (60, 60, 3)).astype(np.uint8)
    noisy[:30] = 255
    noisy[0, :9] = (254, 253, 252)  # a rarer neighbouring colour does not replace white
    shown = np.asarray(Palette([noisy]).applied(noisy).convert("RGB"))
    assert np.all(shown[1:30] == 255)
    assert np.abs(shown.astype(int) - noisy).mean() < 15


def program(folder: Path, lines: str) -> None:
    """A fake program called ffmpeg."""
    path = folder / "ffmpeg"
    path.write_text(f"#!/bin/sh\nfor last; do :; done\n{lines}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def without_package(name: str) -> Any:
    raise ImportError(name)


def test_an_mp4_is_made_by_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It receives every frame, of even size, and the last of an episode several times."""
    monkeypatch.setattr(video_module.importlib, "import_module", without_package)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, 'cat > "$last"; echo "$@" > "$(dirname "$0")/arguments"')
    odd = [frame[:19] for frame in squares(3)]
    out = write_video([odd], tmp_path / "a.mp4", fps=4)
    given = np.frombuffer(out.read_bytes(), np.uint8).reshape(-1, 18, 30, 3)
    assert len(given) == 3 + 6
    assert np.array_equal(given[1], odd[1][:18]) and np.array_equal(given[-1], odd[2][:18])
    assert "-s 30x18 -r 4" in (tmp_path / "arguments").read_text()
    program(tmp_path, "echo one; echo 'no such encoder' >&2; exit 3")
    with pytest.raises(UserError, match="ffmpeg could not write the video: no such encoder"):
        write_video([odd], tmp_path / "b.mp4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mp4", "arguments", "ffmpeg"]


def test_what_no_file_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    mistakes = {
        "a.gif": (0, "fps must be between 0.002 and 50 here, got 0"),
        "b.gif": (float("nan"), "fps must be a finite number of at least 0"),
        "c.gif": (51, "fps must be between 0.002 and 50 here, got 51"),
        "d.webm": (10, "a video is a .gif or an .mp4 file"),
        "e": (10, "a video is a .gif or an .mp4 file"),
        "file/f.gif": (10, "cannot write .*file/f.gif: "),
    }
    for name, (fps, message) in mistakes.items():
        with pytest.raises(UserError, match=message):
            write_video([squares(2)], tmp_path / name, fps)
    (tmp_path / "g.gif").mkdir()
    with pytest.raises(UserError, match="it is a folder"):
        write_video([squares(2)], tmp_path / "g.gif")
    monkeypatch.setattr(video_module.importlib, "import_module", without_package)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r'needs ffmpeg.*pip install "clew\[video\]", or use a'):
        write_video([squares(2)], tmp_path / "h.mp4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "g.gif"]


def test_a_real_mp4(tmp_path: Path) -> None:
    """It has as many frames as were given; needs imageio-ffmpeg."""
    package: Any = pytest.importorskip("imageio_ffmpeg")
    out = write_video([squares(30, 64)], tmp_path / "a.mp4", fps=10)
    assert package.count_frames_and_secs(str(out))[0] == 30 + 15


class Terminal(io.StringIO):
    """A terminal that keeps its output."""

    def isatty(self) -> bool:
        return True


CORRIDOR = Recording(
    observations=np.zeros((3, 2), np.float32),
    actions=np.array([1, 0, 1]),
    rewards=np.array([0.0, 0.5, 1.0]),
    values=np.array([0.1, -0.2, 0.3]),
    probabilities=np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]),
    texts=["|A--|\n", "|-A-|\n", "|--A|\n"],
    action_names=("stay", "go"),
    metrics={"success": 1.0},
)


def test_a_step_as_text() -> None:
    shares = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.8, 0, 0.2]])
    lines = text_frame(CORRIDOR, 2, shares).splitlines()
    assert lines[0] == "|--A|" and lines[1] == "step 2 of 2  reward 1"
    assert lines[2] == "     value 0.3"
    assert lines[3].split() == ["stay", "\u2588" * 10, "50%"]
    assert lines[4].split() == ["go", "\u2588" * 10, "50%", "<"]
    assert lines[5] == "  rests on |\u2588 \u2582|  most: step 0, 80%"
    bare = CORRIDOR._replace(texts=None, probabilities=None, actions=np.array([[0.5, -1]] * 3))
    assert text_frame(bare, 0).splitlines()[0] == "      sees |  |"
    assert text_frame(bare, 0).splitlines()[3].split() == ["action", "0.5", "-1"]
    with pytest.raises(UserError, match="--terminal needs a task that renders text"):
        text_frame(bare._replace(observations=np.zeros((3, 4, 4, 3), np.uint8)), 0)


def test_playing_in_the_terminal() -> None:
    """Frames follow at the requested speed, on a terminal each in the place of the last."""
    slept: list[float] = []
    for stream, marks in ((Terminal(), 2), (io.StringIO(), 0)):
        play(CORRIDOR, Caption("me", "a corridor"), fps=4, stream=stream, sleep=slept.append)
        text = stream.getvalue()
        assert text.startswith("me: a corridor\n|A--|\n")
        assert text.endswith("terminated: success 1\n")
        assert text.count("\x1b[5A\x1b[J") == marks
        places = [text.index(line) for line in ("|A--|", "|-A-|", "|--A|")]
        assert all(one < other for one, other in pairwise(places))
    assert slept == [0.25] * 6
    with pytest.raises(UserError, match="fps must be a finite number of at least 0, got -1"):
        play(CORRIDOR, Caption("me"), fps=-1, stream=io.StringIO())


def test_watching_a_run(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The command prints where the video is; the same seed makes the same file."""
    capsys.readouterr()
    former = ["--influence", "ablation"]  # an earlier name of occlusion
    assert run(["watch", str(tiny), "--actions", "sampled", "--episodes", "2", *former]) == 0
    assert capsys.readouterr().out == f"video: {tiny / 'watch.gif'}\n"
    viewing = Viewing(episodes=2, greedy=False)
    again = watch_run(tiny, viewing, tmp_path / "again.gif")
    assert again.read_bytes() == (tiny / "watch.gif").read_bytes()
    other = watch_run(tiny, Viewing(episodes=2, greedy=False, seed=5), tmp_path / "other.gif")
    assert other.read_bytes() != again.read_bytes()
    options = ["--terminal", "--fps", "200", "--actions", "sampled", "--max-steps", "3"]
    assert run(["watch", str(tiny), *options]) == 0
    assert "|A-T| position 0 of 2, step 0, cue" in capsys.readouterr().out


def test_an_older_checkpoint(tiny: Path) -> None:
    names = [path.stem for path in list_checkpoints(tiny / "checkpoints")]
    newest = load_agent(tiny)
    assert newest.update == 10 and load_agent(tiny, wanted=names[-1]).update == 10
    first = load_agent(tiny, wanted=str(int(names[0].removeprefix("update-"))))
    assert first.update == int(names[0].removeprefix("update-")) < 10
    heads: list[Any] = [found.agent.heads for found in (newest, first)]
    weights = [np.asarray(own.actor.output.weight) for own in heads]
    assert not np.array_equal(*weights)
    with pytest.raises(UserError, match="unknown checkpoint '77'"):
        load_agent(tiny, wanted="77")
    with pytest.raises(UserError, match="seed_index must be below .* seeds, 1, got 1"):
        load_agent(tiny, seed_index=1)


def test_a_picture_that_stands_for_too_long_is_said(tmp_path: Path) -> None:
    """A GIF merges equal pictures into one, whose duration is a 16-bit number."""
    with pytest.raises(UserError, match="more than 655 s, raise fps"):
        write_video([[squares(1)[0]] * 2], tmp_path / "a.gif", 0.002)
    assert not list(tmp_path.iterdir())
