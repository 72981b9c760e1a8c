"""Consent to code that a run's folder names; none of it runs without consent.

The settings of a run may name code that neither clew nor an installed package registers: a task,
memory, encoder or learner as "module:name", Gymnasium's "gymnasium:module:ID",
"gymnax:module:factory", "pettingzoo:module", or a Ray cluster, which can run anything here. The
maker of the folder chose that code, so it is imported only if the user consents, or has trained
this run on this machine. Trainings are recorded outside the folder, where its maker cannot write,
by the folder's path and the named code.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from clew.bridges.gymnasium.build import GYMNASIUM
from clew.bridges.jax_packages import is_packaged
from clew.errors import UserError
from clew.files import write_file
from clew.run.config import TrainConfig

STATE = "CLEW_STATE_DIR"
"""Environment variable for the folder of the user's records, instead of the system's usual one."""
LOCAL_RAY = ("", "auto", "local")
SHOWN = 300
"""Most characters of options in a message."""
IMPORTERS = ("GymV",)
"""Prefixes of Gymnasium ids whose environments import code that their options name."""

_OF_STUDIES = re.compile(r"clew\.lab\.studies\.(\w+\.)?models:\w+")
"""The library's own variants of memories, which are installed with clew."""


class Untrusted(UserError):
    """A folder names code that the user has not consented to; none of it was run."""


def named_code(config: TrainConfig) -> list[str]:
    """Code that the settings would run and no installed package registers, one line each."""
    found = []
    if _is_named(config.env):
        found.append(f"{config.env!r} with the options {_shown(config.env_options)}")
    for name, options in _own_parts(config):
        found.append(f"{name!r} with the options {_shown(options)}")
    if config.asynchronous.ray not in LOCAL_RAY:
        found.append(f"anything that the Ray cluster at {config.asynchronous.ray!r} asks for")
    return found


def require(path: Path, config: TrainConfig, *, trust: bool) -> None:
    """Refuses a folder that names code, unless the user consents or has trained it here.

    Raises:
        Untrusted: naming the code that would run.
    """
    code = named_code(config)
    if not code or trust or _is_remembered(path, config):
        return
    raise Untrusted(
        f"{path} would run {' and '.join(code)}, code that is named in the folder and not "
        "installed with clew. Nothing was run. If you know that code and trust the folder's maker, "
        "use --trust (in Python trust=True)"
    )


def remember(path: Path, config: TrainConfig) -> str | None:
    """Records that the user trains this run on this machine, if it names code.

    Returns:
        A line for the user if that is not possible; the run continues.
    """
    if not named_code(config):
        return None
    try:
        place = _place(path, config)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = {"path": str(path.resolve()), "code": named_code(config)}
        write_file(place, [json.dumps(text).encode()])
    except OSError as error:
        return f"{path} cannot be recorded as yours ({error}): evaluating it will need --trust"
    return None


def _is_named(env: str) -> bool:
    """Whether a task is named by module:name; every name that is not known to be safe counts."""
    if env.startswith(GYMNASIUM):
        name = env.removeprefix(GYMNASIUM)
        return ":" in name or name.startswith(IMPORTERS)
    return ":" in (env.partition(":")[2] if is_packaged(env) else env)


def _own_parts(config: TrainConfig) -> list[tuple[str, dict[str, Any]]]:
    """The parts that the settings name by module:name, except the library's own variants."""
    return [pair for pair in config.own_parts if not _OF_STUDIES.fullmatch(pair[0])]


def _is_remembered(path: Path, config: TrainConfig) -> bool:
    try:
        return _place(path, config).is_file()
    except OSError:
        return False


def _place(path: Path, config: TrainConfig) -> Path:
    """The file that records a folder and all the code that its settings name."""
    what: list[Any] = [str(path.resolve()), config.env, config.env_options, config.asynchronous.ray]
    what += [[name, options] for name, options in _own_parts(config)]
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
    return _state_folder() / "trusted" / f"{digest}.json"


def _state_folder() -> Path:
    """The folder for this user's records, by the conventions of the system.

    Raises:
        OSError: there is no such folder.
    """
    own = os.environ.get(STATE)
    if own:
        return Path(own)
    usual = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", "")
    if Path(usual).is_absolute():
        return Path(usual) / "clew"
    try:
        return Path.home() / ".local" / "state" / "clew"
    except RuntimeError as error:
        raise OSError(f"there is no home folder, and {STATE} names no other") from error


def _shown(options: dict) -> str:
    text = repr(options)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"
