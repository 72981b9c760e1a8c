"""Writes frames to a video file: GIF always, MP4 if ffmpeg is installed."""

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
from PIL import Image

from clew.errors import UserError, require_rate

Frame = UInt8[np.ndarray, "height width 3"]
HOLD_SECONDS = 1.5
"""How long the last frame of an episode is shown."""
FASTEST = {".gif": 50, ".mp4": 240}
"""Most frames per second; browsers slow down a GIF with more."""
SLOWEST = 0.002
"""Least frames per second: a GIF frame lasts at most 655 s, including the last one's extra time."""
_SAMPLES = 12
COLOURS, EXACT = 255, 160
"""Number of colours of a palette, and how many of them are the most frequent ones, unchanged."""


def check_video(out: Path, fps: float) -> None:
    """Checks that a video can be written, before anything is computed.

    Raises:
        UserError: for an impossible number of frames per second, a suffix that is neither .gif nor
            .mp4, an MP4 without ffmpeg, or a file that cannot be written.
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
    """Checks the frames per second.

    Raises:
        UserError: naming the number and its bound.
    """
    require_rate("fps", fps)
    if not SLOWEST <= fps <= fastest:
        raise UserError(f"fps must be between {SLOWEST:g} and {fastest:g} here, got {fps:g}")


def write_video(episodes: Sequence[Sequence[Frame]], out: str | Path, fps: float = 10) -> Path:
    """Writes episodes one after another, atomically.

    The last frame of an episode is shown for longer: a GIF has one picture for each frame, while an
    MP4 repeats the last one. An MP4 loses the last row or column of frames of odd size.

    Args:
        episodes: the frames of each, all of one size; each is drawn when it is read.
        out: a .gif or .mp4 file, replaced if it exists; its folder is created.
        fps: frames per second.

    Raises:
        UserError: see `check_video`; or if writing fails.
    """
    out = Path(out)
    check_video(out, fps)
    temporary = out.with_name(f".{out.stem}.{os.getpid()}.writing{out.suffix}")
    write = _write_gif if out.suffix.lower() == ".gif" else _write_mp4
    try:
        temporary.unlink(missing_ok=True)  # a file from somebody else could be a link
        write(episodes, temporary, fps)
        os.replace(temporary, out)
    except OverflowError as error:  # equal pictures in a row are shown as one
        text = f"cannot write {out}: one picture would be shown for more than 655 s, raise fps"
        raise UserError(text) from error
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return out


def find_ffmpeg() -> str:
    """The program ffmpeg, from the package imageio-ffmpeg or the system.

    Raises:
        UserError: if there is neither, with the package to install.
    """
    with contextlib.suppress(ImportError, RuntimeError):
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    found = shutil.which("ffmpeg")
    if found is None:
        raise UserError(
            'an MP4 needs ffmpeg, which is not installed: pip install "clew[video]", or use a .gif'
        )
    return found


def _write_gif(episodes: Sequence[Sequence[Frame]], place: Path, fps: float) -> None:
    palette = Palette(_samples(episodes))
    drawn = (palette.applied(frame) for frame in chain.from_iterable(episodes))
    durations: list[int] = []
    for frames in episodes:
        # In hundredths of a second, the resolution of a GIF.
        marks = np.round(np.arange(len(frames) + 1) * 100 / fps).astype(int)
        durations += (10 * np.diff(marks)).tolist()
        durations[-1] += round(1000 * HOLD_SECONDS)
    first = next(drawn)
    # With optimize, unchanged parts of a picture cost almost nothing.
    first.save(
        place, "GIF", save_all=True, append_images=drawn, duration=durations, loop=0, optimize=True
    )


def _samples(episodes: Sequence[Sequence[Frame]]) -> list[Frame]:
    """A few frames from all episodes, from which the palette is chosen."""
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
            # A program that ended early reports the reason on standard error.
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


class Palette:
    """The 255 colours of a GIF, chosen from some frames, and the nearest one for every colour.

    A drawing has few colours, and its background has to stay white; so the most frequent colours
    are taken unchanged, and the rest by Pillow's median cut. One palette for all frames keeps
    colours from flickering, and makes unchanged parts of frames free.

    Args:
        samples: frames, at least one.
    """

    def __init__(self, samples: Sequence[Frame]):
        pixels = np.concatenate([frame.reshape(-1, 3) for frame in samples])
        codes, counts = np.unique(_codes(pixels), return_counts=True)
        frequent = codes[np.argsort(-counts, kind="stable")][:EXACT]
        exact = np.stack([frequent >> 16, frequent >> 8 & 255, frequent & 255], axis=1)
        colours = exact.astype(np.uint8)
        others = pixels[~np.isin(_codes(pixels), frequent)]
        if len(others):
            room = COLOURS - len(colours)
            cut = Image.fromarray(others[None]).quantize(room, Image.Quantize.MEDIANCUT)
            rest = np.array(cut.getpalette(), np.uint8).reshape(-1, 3)[:room]
            colours = np.concatenate([colours, rest])
        self._colours = colours.reshape(-1).tolist()
        self._table = self._nearest()
        # Pillow rounds when it compares, and would take a neighbour for white. Entries are indexed
        # by six bits of each colour; the last one written is that of the most frequent colour.
        self._table[_boxes(exact[::-1].astype(np.uint8))] = np.arange(len(exact))[::-1]

    def applied(self, frame: Frame) -> Image.Image:
        """A frame in these colours."""
        picture = Image.fromarray(self._table[_boxes(frame)])
        picture.putpalette(self._colours)
        return picture

    def _nearest(self) -> UInt8[np.ndarray, " boxes"]:
        """For six bits of each colour, the index of the nearest palette colour."""
        palette = Image.new("P", (1, 1))
        palette.putpalette(self._colours)
        steps = np.arange(64, dtype=np.uint8) * 4 + 2
        grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1)
        picture = Image.fromarray(grid.reshape(64, -1, 3))
        found = picture.quantize(palette=palette, dither=Image.Dither.NONE)
        return np.asarray(found).reshape(-1).copy()


def _codes(pixels: UInt8[np.ndarray, "*lead 3"]) -> np.ndarray:
    return pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)


def _boxes(pixels: UInt8[np.ndarray, "*lead 3"]) -> np.ndarray:
    return (pixels >> 2).astype(np.uint32) @ np.array([1 << 12, 1 << 6, 1], np.uint32)
