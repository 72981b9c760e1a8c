"""Every named setting that a published result was made with."""

from collections.abc import Callable
from typing import Any

from clew.errors import unknown_name
from clew.lab.grid import Study
from clew.lab.studies import pramanik
from clew.lab.studies.makkink import grid as makkink
from clew.lab.studies.memory_maze import grid as memory_maze_study
from clew.lab.studies.memory_maze import settings as memory_maze
from clew.lab.studies.tmaze import grid as tmaze
from clew.run.config import TrainConfig

STUDIES: dict[str, dict[str, TrainConfig]] = {
    "pramanik": pramanik.PRESETS,
    "makkink": makkink.PRESETS,
}
"""Name of a study to its settings by name."""


def _pramanik(part: str = "tmaze", **options: Any) -> Study:
    make = memory_maze_study.study if part == memory_maze_study.PART else tmaze.study
    return make(part=part, **options)


GRIDS: dict[str, Callable[..., Study]] = {"makkink": makkink.study, "pramanik": _pramanik}
"""Name of a study to what makes its grid, a function of `part`, `edition` and what else the part
can be told."""

SWEEPS: dict[str, Callable[..., Study]] = {
    "tmaze": tmaze.sweep,
    memory_maze_study.PART: memory_maze_study.sweep,
}
"""Part to what makes the grid of its search for learning rates and entropy costs."""

PARTS: dict[str, tuple[str, ...]] = {
    "makkink": (*makkink.PARTS, "all"),
    "pramanik": ("approximation", "tmaze", memory_maze_study.PART),
}
"""Name of a study to its parts, those that train nothing included."""

COMPUTATIONS: dict[str, dict[str, str]] = {
    "pramanik": {"approximation": "clew.lab.studies.approximation:run"},
}
"""Name of a study to its parts that train nothing: part to "module:function".

Each is called with a folder, `draws` (0 for its own number) and `say`, a function that is told what
is being computed; it writes its results into the folder and returns what it found, as text.
"""

PRESETS: dict[str, TrainConfig] = {
    name: config
    for presets in (*STUDIES.values(), memory_maze.PRESETS)
    for name, config in presets.items()
}
"""Name to settings, "<study>/<model>"; those of "memory-maze" need its extra."""


def preset(name: str) -> TrainConfig:
    """The settings called `name`.

    Raises:
        UserError: if there are none, with the nearest names.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]
