"""Builds one environment by name, "gymnasium:ID" or "module:factory", with its wrappers."""

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import DependencyNotInstalled
from PIL import Image

from clew.bridges.gymnasium.spaces import number
from clew.bridges.gymnasium.trials import TrialEpisodes
from clew.errors import UserError, check_call, parameters_of, raised
from clew.names import import_own, install_hint, resolve

GYMNASIUM = "gymnasium:"

REGISTERED_BY = {
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "popgym-": "popgym",
    "ALE/": "ale_py",
    "MemoryMaze-": "clew.envs.gymnasium_api",  # the package's own ids need the old gym
    "clew/": "clew.envs.gymnasium_api",
}
"""Prefixes of ids, and the module that registers these ids with Gymnasium when it is imported."""

GIF_PIXELS = 320
GIF_FRAMES = 5_000


@dataclass(frozen=True)
class EnvBuilder:
    """Everything that is needed to build one environment, to be sent to a worker process."""

    name: str
    """ "gymnasium:ID" or "module:factory"."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `gymnasium.make` or of the factory."""
    frame_skip: int = 1
    allows: Callable[[Any, Any, Any], bool] | None = None
    """Of `FrameSkip`."""
    time_limit: int | None = None
    trial_episodes: int = 1
    trial_memory: bool = True
    video_every: int = 0
    video_folder: str = ""
    spec: EnvSpec | None = None
    """The registered spec of the id, for a process in which it is not registered."""

    def __call__(self, index: int = 0) -> gymnasium.Env:
        """Builds the environment with the wrappers for single environments.

        Args:
            index: its place among those side by side; the first one is filmed.

        Raises:
            UserError: an unknown id, module, factory or option, or a missing package.
        """
        filmed = bool(self.video_every) and index == 0
        options = dict(self.options)
        if filmed and takes_render_mode(self.name, self.spec):
            options.setdefault("render_mode", "rgb_array")
        env = build(self.name, options, self.spec)
        if self.frame_skip > 1:
            env = FrameSkip(env, self.frame_skip, self.allows)
        if self.time_limit is not None:
            env = gymnasium.wrappers.TimeLimit(env, self.time_limit)
        if self.trial_episodes > 1:
            env = TrialEpisodes(env, self.trial_episodes, self.trial_memory)
        return EpisodeGif(env, self.video_folder, self.video_every) if filmed else env


def build(name: str, options: Mapping[str, Any], spec: EnvSpec | None = None) -> gymnasium.Env:
    """One environment by name, without any wrapper of clew's; `spec` as for `make_gymnasium`.

    Raises:
        UserError: an unknown id, module, factory or option, a missing package, or a factory that
            returns something else.
    """
    if name.startswith(GYMNASIUM):
        return make_gymnasium(name.removeprefix(GYMNASIUM), options, spec)
    factory = resolve(name)
    check_call(name, factory, **options)
    env = call(name, factory, options)
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{name} must return a gymnasium.Env, it returned {_kind(env, factory)}")
    return env


def _kind(made: object, factory: Callable[..., Any]) -> str:
    """The kind of object that a factory returned instead of an environment, and how to fix that."""
    if made is None:
        return "None: does it lack a return?"
    kind = f"a {type(made).__module__}.{type(made).__name__}"
    if isinstance(made, gymnasium.vector.VectorEnv):
        return f"{kind}; a factory of vector environments takes a parameter num_envs"
    if type(made) is factory:
        return f"{kind}: derive the class from gymnasium.Env"
    return kind


def make_gymnasium(
    env_id: str, options: Mapping[str, Any], spec: EnvSpec | None = None
) -> gymnasium.Env:
    """`gymnasium.make`, after importing the packages that register well-known ids.

    `env_id` may be "module:ID", as in Gymnasium: that module is imported first. If the id is still
    unknown, `spec` is registered, since a worker process has not run the user's notebook.

    Raises:
        UserError: an unknown id, with the nearest ones; a missing package, with its name; or an
            option that the environment does not take.
    """
    own, _, plain = env_id.rpartition(":")
    package = next((m for p, m in REGISTERED_BY.items() if plain.startswith(p)), "")
    if own:
        import_own(own, GYMNASIUM + env_id)
    elif package:
        call(f"environment {plain}", importlib.import_module, {"name": package})
    if spec is not None:
        gymnasium.registry.setdefault(plain, spec)
    if plain not in gymnasium.registry:
        near = difflib.get_close_matches(plain, gymnasium.registry, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        if own and hasattr(sys.modules[own], plain):
            hint = f"; a class or function of that name is written {own}:{plain}"
        raise UserError(
            f"unknown Gymnasium environment {plain!r}{hint} (for an id that a package registers, "
            "write gymnasium:PACKAGE:ID)"
        )
    # Gymnasium's checker only warns, and only of the first step; the stream checks every step.
    return call(
        GYMNASIUM + env_id,
        lambda **kwargs: gymnasium.make(plain, disable_env_checker=True, **kwargs),
        options,
    )


def call(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Calls a factory; errors that the user can fix become a `UserError`."""
    try:
        return factory(**options)
    except SystemExit as error:
        raise UserError(f"{name} called sys.exit({error.code!r}) while it was built") from error
    except DependencyNotInstalled as error:
        line = " ".join(str(error).split())
        raise UserError(f"{name} needs a package that is not installed: {line}") from error
    except ModuleNotFoundError as error:
        needed = install_hint(error.name or str(error))
        raise UserError(f"{name} needs {needed}") from error
    except TypeError as error:
        refusals = ("unexpected keyword argument", "multiple values for")
        if not any(words in str(error) for words in refusals):
            raise raised(name, "while it was built", error) from error
        line = str(error).split(" was raised from the environment creator")[0]
        if "render_mode" in options and "render_mode" in line:
            line += "; for films it is called with render_mode='rgb_array'"
        raise UserError(f"{name} does not take these options: {line}") from error
    except UserError:
        raise
    except Exception as error:
        raise raised(name, "while it was built", error) from error


def takes_render_mode(name: str, spec: EnvSpec | None = None) -> bool:
    """Whether an environment by name can be built with a `render_mode`, as far as is known."""
    if not name.startswith(GYMNASIUM):
        factory = resolve(name)
    else:
        spec = spec or gymnasium.registry.get(name.rpartition(":")[2])
        entry = None if spec is None else spec.entry_point
        if entry is None:
            return True
        factory = load_env_creator(entry) if isinstance(entry, str) else entry
    return accepts_render_mode(factory)


def accepts_render_mode(factory: Callable[..., Any]) -> bool:
    """Whether a factory has a parameter `render_mode`, or passes on any."""
    parameters = parameters_of(factory)
    return "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


class FrameSkip(gymnasium.Wrapper):
    """Repeats every action several times and sums the rewards.

    It stops when the episode ends or the action is no longer allowed. Gymnasium has no such
    wrapper: its `MaxAndSkipObservation` also takes the maximum over two frames, for Atari.

    Args:
        env: the environment.
        frames: most repetitions.
        allows: whether an action may be taken after an observation with its info; None for always.
    """

    def __init__(
        self, env: gymnasium.Env, frames: int, allows: Callable[[Any, Any, Any], bool] | None = None
    ):
        super().__init__(env)
        self.frames, self.allows = frames, allows

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The last observation of up to `frames` steps, with the sum of their rewards."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        total = number("reward", reward)
        for _ in range(self.frames - 1):
            if terminated or truncated:
                break
            if self.allows is not None and not self.allows(action, observation, info):
                break
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += number("reward", reward)
        return observation, total, terminated, truncated, info


class EpisodeGif(gymnasium.Wrapper):
    """Films every n-th episode, including the first one, as `episode-000000.gif` in a folder.

    If the folder already has films, the numbers continue after theirs, so that none is overwritten.

    A film has one picture for each observation, including the final one. Gymnasium's `RecordVideo`
    needs moviepy and ffmpeg and keeps full frames; this wrapper needs Pillow, a dependency of
    Matplotlib, and keeps pictures of at most 320 pixels a side with 256 colours, at most 5,000 per
    episode. If an environment is closed within an episode, the film has the part until then.

    Args:
        env: an environment with the render mode "rgb_array".
        folder: the folder to write to; made if missing.
        every: n.

    Raises:
        UserError: the environment does not render arrays.
    """

    def __init__(self, env: gymnasium.Env, folder: str | Path, every: int):
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise UserError(
                "video_every needs the render mode 'rgb_array', but the environment's is "
                f"{env.render_mode!r}"
            )
        self.folder, self.every = Path(folder).absolute(), every
        found = [path.stem[8:] for path in self.folder.glob("episode-*.gif")]
        self._first = max((int(number) + 1 for number in found if number.isdecimal()), default=0)
        self._episode, self._frames = -1, []

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Opens an episode and films its first observation."""
        self._write()
        self._episode += 1
        answer = self.env.reset(**options)
        self._film()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes a step and films it."""
        answer = self.env.step(action)
        self._film()
        if answer[2] or answer[3]:
            self._write()
        return answer

    def close(self) -> None:
        """Writes the film so far, and closes the environment."""
        self._write()
        super().close()

    def _film(self) -> None:
        if self._episode % self.every or len(self._frames) >= GIF_FRAMES:
            return
        picture: Any = self.env.render()
        image = Image.fromarray(np.asarray(picture, np.uint8))
        image.thumbnail((GIF_PIXELS, GIF_PIXELS))
        self._frames.append(image.quantize(256))

    def _write(self) -> None:
        if not self._frames:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        milliseconds = max(20, round(1000 / float(self.env.metadata.get("render_fps") or 30)))
        first, *others = self._frames
        with self._new_file() as file:
            how = {"append_images": others, "duration": milliseconds, "loop": 0}
            first.save(file, "GIF", save_all=True, **how)
        self._frames = []

    def _new_file(self) -> IO[bytes]:
        while True:
            path = self.folder / f"episode-{self._first + self._episode:06d}.gif"
            try:
                return path.open("xb")
            except FileExistsError:  # from another environment that was opened since
                self._first += 1
