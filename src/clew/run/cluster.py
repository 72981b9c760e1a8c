"""Connections to a Ray cluster: a running one, or one that this process starts."""

import contextlib
import importlib
import logging
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from clew.errors import UserError

CONNECT_SECONDS = 20.0
"""How long a cluster has to answer."""
HOW_TO_START = "`ray start --head` starts a cluster on this machine"


def import_ray() -> Any:
    """The package.

    Raises:
        UserError: if it is not installed.
    """
    # Before the import, which reads it, so that no usage statistics are sent.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise UserError(
            "running on a cluster needs Ray, which is not installed: pip install 'clew[ray]'"
        ) from error


def check_address(address: str) -> None:
    """Refuses text that cannot be the address of a cluster, without connecting.

    Raises:
        UserError: with the valid forms.
    """
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal() and int(port) < 2**16) or "/" in host:
        raise UserError(f"expected auto, local, HOST:PORT or ray://HOST:PORT, got {address!r}")


def join(address: str) -> tuple[Any, bool]:
    """Connects this process, unless it is connected.

    Args:
        address: "auto" for the cluster of this machine or of RAY_ADDRESS, "host:port" from a
            machine of the cluster, "ray://host:port" from any other machine; "local" for a cluster
            on this machine that ends with this process. A process that is already connected to
            Ray needs "auto", and stays connected in the end.

    Returns:
        The package, and whether the caller has to disconnect.

    Raises:
        UserError: if Ray is not installed, or no cluster answers at the address.
    """
    ray = import_ray()
    if not ray.is_initialized():
        _connect(ray, address)
        return ray, True
    if address != "auto":
        raise UserError(
            f"this process is already connected to Ray: use 'auto' instead of {address!r}, or call "
            "ray.shutdown() first"
        )
    return ray, False


@contextlib.contextmanager
def joined(address: str) -> Iterator[None]:
    """Connects this process within a `with` block, see `join`; not for an empty address."""
    if not address:
        yield
        return
    ray, own = join(address)
    try:
        yield
    finally:
        if own:
            ray.shutdown()


def environment(**more: str) -> dict[str, str]:
    """Environment variables for a process of the cluster: this one's settings and import paths."""
    settings = {k: v for k, v in os.environ.items() if k.startswith(("JAX_", "XLA_", "CLEW_"))}
    # A node has its own Python and packages, perhaps at the same paths.
    own = tuple(os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix))
    here = [path for path in map(os.path.abspath, sys.path) if not path.startswith(own)]
    places = os.pathsep.join(dict.fromkeys([*here, os.getcwd()]))
    return {**settings, **more, "PYTHONPATH": places}


# Ray may try for minutes and ends the process when it gives up, so another process tries first.
_TRY = """
import logging, sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
except Exception as error:
    sys.exit(print(" ".join(str(error).split())) or 1)
"""


def _connect(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        with warnings.catch_warnings():  # it forks, and JAX has threads, but executes at once
            warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
            try:
                ray.init("local", include_dashboard=False, **quiet)
            except Exception as error:  # Ray raises plain ones, for example on a busy machine
                why = " ".join(str(error).split())
                raise UserError(f"no Ray cluster could be started here: {why}") from error
        return
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    if address != "auto":
        _knock(address)
    try:
        run = subprocess.run(
            [sys.executable, "-c", _TRY, address],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=CONNECT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        why = f"no answer within {CONNECT_SECONDS:.0f} seconds"
        raise _not_found(address, why) from error
    if run.returncode:
        raise _not_found(address, run.stdout.strip() or f"exit code {run.returncode}")
    ray.init(address, **quiet)


def _knock(address: str) -> None:
    """Checks quickly whether the address answers."""
    check_address(address)
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except OSError as error:
        raise _not_found(address, str(error)) from error


def _not_found(address: str, why: str) -> UserError:
    return UserError(f"no Ray cluster at {address!r}: {why} ({HOW_TO_START})")
