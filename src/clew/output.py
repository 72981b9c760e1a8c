"""Output that ends nothing: a stream that falls silent, and an end without complaints."""

import contextlib
import io
import os
import sys
from typing import TextIO, cast

try:
    import resource
except ImportError:  # Windows limits descriptors in another way
    resource = None

_ESCAPES = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}


def printable(text: str) -> str:
    """A text with escapes for control characters, which a terminal would obey; lines stay."""
    return text.translate(_ESCAPES)


class FailSafeOutput(io.TextIOBase):
    """A text stream that falls silent where it cannot be written to, and never raises.

    The reader of a pipe may be gone (`| head`), a terminal closed, a disk full: no reason to lose
    a training. Every write is tried anew, so a disk that has room again gets the lines from then.

    Args:
        stream: where to; None, as `sys.stderr` is in a process that was started without one,
            drops everything.
    """

    def __init__(self, stream: TextIO | None):
        self._stream = stream

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the stream."""
        return (self._stream and self._stream.encoding) or "utf-8"

    def write(self, text: str, /) -> int:
        """Writes what can be written; letters that the stream has not become escapes."""
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                known = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
                self._stream.write(known)
        return len(text)

    def flush(self) -> None:
        """Hands over what was written, if that is possible."""
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()

    def fileno(self) -> int:
        """Of the stream.

        Raises:
            OSError: it has none.
        """
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        with contextlib.suppress(OSError, ValueError):
            return self._stream is not None and self._stream.isatty()
        return False


def fail_safe(stream: TextIO | None) -> TextIO:
    """A `FailSafeOutput`, for what is written for files."""
    return cast(TextIO, FailSafeOutput(stream))


def say(line: str) -> None:
    """Prints a line on standard error, if that can be written to."""
    print(printable(line), file=FailSafeOutput(sys.stderr), flush=True)


def open_missing_streams() -> None:
    """Opens what is closed of standard input, output and error, so that they lead nowhere.

    Letters that standard output cannot write become escapes, as those of standard error do.

    Otherwise the next file that is opened gets the descriptor of one of them, and the messages of
    a library would be written into it. For the start of a process, and not on Windows.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # letters that its code page has not
    for number in range(3 if os.name == "posix" else 0):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def flush_streams() -> None:
    """Flushes standard output and error for the last time; what cannot be written is dropped.

    Python itself would complain at exit, and change the exit code to 120.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def allow_descriptors() -> None:
    """Raises this process's limit of descriptors as far as it may be raised.

    For its end: what ran out of them needs some to remove its temporary files, and multiprocessing
    would show a traceback otherwise.
    """
    if resource is not None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
