"""Output that never ends a program: failing writes are dropped, and the exit is clean."""

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
    """The text with control characters escaped, which a terminal would obey; newlines stay."""
    return text.translate(_ESCAPES)


class FailSafeOutput(io.TextIOBase):
    """A text stream that drops what it cannot write, and never raises.

    A training must not be lost because the reader of a pipe is gone (`| head`), a terminal is
    closed or a disk is full. Every write is tried anew, so output returns once the disk has room.

    Args:
        stream: the stream to write to; None, as `sys.stderr` is in a process that was started
            without one, drops everything.
    """

    def __init__(self, stream: TextIO | None):
        self._stream = stream

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the stream."""
        return (self._stream and self._stream.encoding) or "utf-8"

    def write(self, text: str, /) -> int:
        """Writes what can be written, with characters that the stream cannot encode escaped."""
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                known = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
                self._stream.write(known)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream, if that is possible."""
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
    """A `FailSafeOutput` typed as a text file."""
    return cast(TextIO, FailSafeOutput(stream))


def say(line: str) -> None:
    """Prints a line on standard error, if possible."""
    print(printable(line), file=FailSafeOutput(sys.stderr), flush=True)


def open_missing_streams() -> None:
    """Opens those of standard input, output and error that are closed, on the null device.

    Otherwise the next file that is opened would get the descriptor of one of them, and a library
    would write its messages into it. For the start of a process, and not on Windows.

    Characters that standard output cannot encode are escaped, as on standard error.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # where its encoding lacks some
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
    """Raises this process's limit of file descriptors as far as allowed.

    For the end of a process that ran out of them: it needs some to remove its temporary files;
    otherwise multiprocessing would show a traceback.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # On macOS the hard limit is usually infinite, which the soft one must not be.
    most = soft + 64 if hard == resource.RLIM_INFINITY else hard
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
