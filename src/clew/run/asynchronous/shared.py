"""Arrays in shared memory: trees of arrays, and parameters that change while others read them.

The memory comes from `multiprocessing.RawArray`. Its file has no name any more when the first byte
is written, so the operating system frees it with the last process, even if processes are killed.
"""

import ctypes
import math
import time
import zlib
from multiprocessing.context import BaseContext
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

ALIGNED = 64
"""Alignment in bytes, so that every leaf begins on its own cache line."""
HEADER = 4
READ_SECONDS = 60.0


class ByteLayout:
    """The places of a tree's arrays within a block of bytes.

    Args:
        template: a tree whose leaves have shape and dtype.
    """

    def __init__(self, template: PyTree):
        leaves, self._structure = jax.tree.flatten(template)
        self._leaves: list[tuple[int, tuple[int, ...], np.dtype]] = []
        self.size = 0
        for leaf in leaves:
            shape, dtype = tuple(leaf.shape), np.dtype(leaf.dtype)
            self._leaves.append((self.size, shape, dtype))
            self.size += -(-dtype.itemsize * math.prod(shape) // ALIGNED) * ALIGNED
        self.size = max(self.size, ALIGNED)

    def views(self, memory: np.ndarray) -> PyTree[np.ndarray]:
        """The tree, with leaves that are views of `size` bytes."""
        return jax.tree.unflatten(self._structure, self._views(memory))

    def write(self, memory: np.ndarray, tree: PyTree) -> None:
        """Copies a tree into `size` bytes.

        Raises:
            ValueError: its leaves differ from those of the template.
        """
        leaves, structure = jax.tree.flatten(tree)
        if structure != self._structure:
            raise ValueError(f"expected arrays as {self._structure}, got {structure}")
        for place, array in zip(self._views(memory), map(np.asarray, leaves), strict=True):
            if array.shape != place.shape or not np.can_cast(array.dtype, place.dtype, "same_kind"):
                expected, got = (f"{one.dtype}{list(one.shape)}" for one in (place, array))
                raise ValueError(f"expected an array {expected}, got {got}")
            place[...] = array

    def _views(self, memory: np.ndarray) -> list[np.ndarray]:
        return [
            np.frombuffer(memory, dtype, math.prod(shape), begin).reshape(shape)
            for begin, shape, dtype in self._leaves
        ]


def shared_bytes(context: BaseContext, size: int) -> Any:
    """`size` bytes of zeros, shared with processes that get them as an argument at the start."""
    return context.RawArray(ctypes.c_ubyte, size)


def as_array(memory: Any) -> np.ndarray:
    """Shared bytes as an array of uint8, which keeps them alive."""
    return np.frombuffer(memory, np.uint8)


class Versions:
    """The newest tree of arrays from one writer, for any number of readers that never block it.

    Two buffers are written in turn, so a reader has to retry only if it is overtaken twice. Each
    has a counter that is odd during a write (a sequence lock), its version and a checksum. The
    checksum is for processors on which others see writes out of order. So no reader ever gets half
    of one tree and half of the next.

    Args:
        memory: `Versions.size(layout)` shared bytes.
        layout: of the tree.
    """

    def __init__(self, memory: Any, layout: ByteLayout):
        whole = as_array(memory)
        self._layout = layout
        self._newest = np.frombuffer(whole, np.int64, 1)
        ends = [ALIGNED * (1 + b) + layout.size * b for b in (0, 1)]
        self._headers = [np.frombuffer(whole, np.int64, HEADER, end) for end in ends]
        begins = [end + ALIGNED for end in ends]
        self._buffers = [whole[b : b + layout.size] for b in begins]

    @staticmethod
    def size(layout: ByteLayout) -> int:
        """The number of bytes that are needed."""
        return 3 * ALIGNED + 2 * layout.size

    def write(self, version: int, tree: PyTree) -> None:
        """Makes a tree the newest one."""
        place = 1 - int(self._newest[0])
        header, buffer = self._headers[place], self._buffers[place]
        header[0] += 1
        self._layout.write(buffer, tree)
        header[1], header[2] = version, _checksum(buffer)
        header[0] += 1
        self._newest[0] = place

    def read(self) -> tuple[int, PyTree[np.ndarray]]:
        """Version and copy of the newest tree.

        Raises:
            TimeoutError: no whole tree for a minute, because the writer died during a write.
        """
        deadline = time.monotonic() + READ_SECONDS
        while time.monotonic() < deadline:
            place = int(self._newest[0])
            header = self._headers[place]
            counter, version, checksum = (int(x) for x in header[:3])
            copy = self._buffers[place].copy()
            same = counter % 2 == 0 and int(header[0]) == counter
            if same and counter and _checksum(copy) == checksum:
                return version, self._layout.views(copy)
            time.sleep(0.0001)
        raise TimeoutError("no parameters could be read for a minute")


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(array.data)
