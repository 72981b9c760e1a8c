"""Frames as a file: GIF always, MP4 where there is a program that writes it."""

import contextlib
import importlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import UInt8

from clew.errors import UserError, require_rate
from clew.watch.palette import Palette

Frame = UInt8[np.ndarray, "height width 3"]
HOLD_SECONDS = 1.5
"""How long the last frame of an episode stays."""
FASTEST = {".gif": 50, ".mp4": 240}
"""Frames a second at most; browsers slow down a GIF that asks for more."""
_SAMPLES = 12


def check_video(out: Path, fps: float) -> None:
    """Refuses what cannot be written, before anything is computed.

    Raises:
        UserError: for an impossible number of frames a second, an ending that is neither .gif nor
            .mp4, an MP4 without a program that writes it, a place that cannot be written to.
    """
    if out.suffix.lower() not in FASTEST:
        raise UserError(f"a video is a .gif or an .mp4 file, got {str(out)!r}")
    check_fps(fps, FASTEST[out.suffix.lower()])
    if out.suffix.lower() == ".mp4":
        find_ffmpeg()
    if out.is_dir():
        raise UserError(f"cannot write {out}: it is a folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from error


def check_fps(fps: float, fastest: float = 240) -> None:
    """Refuses frames a second that are none, or too many.

    Raises:
        UserError: naming the number and its bound.
    """
    require_rate("fps", fps, positive=True)
    if fps > fastest:
        raise UserError(f"fps must be at most {fastest:g} here, got {fps:g}")


def write_video(episodes: Sequence[Sequence[Frame]], out: str | Path, fps: float = 10) -> Path:
    """Writes episodes one after another; the file is there whole or not at all.

    A GIF has one picture for each frame, the last one of an episode shown for longer. An MP4
    repeats it, and loses the last row or column of frames of odd size.

    Args:
        episodes: the frames of each, all of one size; drawn when they are asked for.
        out: a .gif or .mp4 file, replaced if it is there; its folder is made.
        fps: frames a second.

    Raises:
        UserError: see `check_video`; or if writing fails.
    """
    out = Path(out)
    check_video(out, fps)
    temporary = out.with_name(f".{out.stem}.{os.getpid()}.writing{out.suffix}")
    write = _write_gif if out.suffix.lower() == ".gif" else _write_mp4
    try:
        write(episodes, temporary, fps)
        os.replace(temporary, out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return out


def find_ffmpeg() -> str:
    """The program ffmpeg: that of the package imageio-ffmpeg, or the system's.

    Raises:
        UserError: if there is neither, with what to install.
    """
    with contextlib.suppress(ImportError, RuntimeError):
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    found = shutil.which("ffmpeg")
    if found is None:
        raise UserError(
            'an MP4 needs ffmpeg, which is not here: pip install "clew[video]", or take a .gif'
        )
    return found


def _write_gif(episodes: Sequence[Sequence[Frame]], place: Path, fps: float) -> None:
    palette = Palette(_samples(episodes))
    drawn = (palette.applied(frame) for frame in chain.from_iterable(episodes))
    durations: list[int] = []
    for frames in episodes:
        # In hundredths of a second, which is all that a GIF can say.
        marks = np.round(np.arange(len(frames) + 1) * 100 / fps).astype(int)
        durations += (10 * np.diff(marks)).tolist()
        durations[-1] += round(1000 * HOLD_SECONDS)
    first = next(drawn)
    # With optimize, what has not changed from one picture to the next costs next to nothing.
    first.save(
        place, "GIF", save_all=True, append_images=drawn, duration=durations, loop=0, optimize=True
    )


def _samples(episodes: Sequence[Sequence[Frame]]) -> list[Frame]:
    """A few frames from all over, by which the palette is chosen."""
    starts = np.cumsum([0, *map(len, episodes)])
    wanted = sorted({round(at) for at in np.linspace(0, starts[-1] - 1, _SAMPLES)})
    found = [int(np.searchsorted(starts, at, side="right")) - 1 for at in wanted]
    return [episodes[e][at - starts[e]] for e, at in zip(found, wanted, strict=True)]


def _write_mp4(episodes: Sequence[Sequence[Frame]], place: Path, fps: float) -> None:
    high, wide = (size - size % 2 for size in episodes[0][0].shape[:2])
    form = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{wide}x{high}", "-r", f"{fps:g}"]
    way = ["-an", "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    command = [find_ffmpeg(), "-y", "-loglevel", "error", *form, "-i", "-", *way, str(place)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said)
        assert process.stdin is not None
        try:
            # A program that has ended for a reason of its own says it on standard error.
            with contextlib.suppress(BrokenPipeError):
                for frames in episodes:
                    _feed(process.stdin, frames, high, wide, max(1, round(HOLD_SECONDS * fps)))
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
        if process.returncode:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise UserError(f"ffmpeg could not write the video: {lines[-1]}")


def _feed(pipe: IO[bytes], frames: Sequence[Frame], high: int, wide: int, hold: int) -> None:
    last = b""
    for frame in frames:
        last = np.ascontiguousarray(frame[:high, :wide]).tobytes()
        pipe.write(last)
    for _ in range(hold):
        pipe.write(last)
