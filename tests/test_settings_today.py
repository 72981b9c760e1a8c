"""The settings that a results page's commands would train with today, beside those of its rows.

Rows of studies have a digest of their settings. For folders of runs a file beside the page,
`README.settings.toml`, has the command of every run and later changes: `[changed]` has, for a
pattern of folders, each setting that differs, with its value then. The page names these settings.
`memory_defaults.json` reveals a changed default of a memory: the change goes into
`clew.run.migration`, which tells saved runs' settings from today's, and into that file.
"""

import fnmatch
import json
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks import (
    arelit_tmaze,
    attention_or_average,
    critic_memory,
    critic_only,
    gtrxl_forgets,
    hard_tmazes,
    identity_at_start,
    initial_weights,
    jax_packages,
    joint_encoder,
    key_to_door,
    lists,
    memory_rate,
    modern_memories,
    pixel_maze,
    residual_weight,
    shm_weights,
    short_to_long,
    silent_tasks,
    steps_back,
    tmaze_200,
    trials,
    which_learner,
)
from benchmarks.popjaxrl import bandit, their_settings

from clew.cli.parse import parse
from clew.cli.train import TrainCommand, default_command
from clew.lab.grid import Study
from clew.lab.studies.makkink import grid as makkink
from clew.lab.studies.popgym import grid as popgym
from clew.lab.studies.tmaze import grid as tmaze
from clew.memory import MEMORIES, options_of
from clew.names import is_reference, resolve
from clew.run import json_lines
from clew.run.config import TrainConfig, config_from_json, differences

RESULTS = Path(__file__).parents[1] / "results"
OLDER = {"tmaze-120"}
"""Pages whose settings later versions cannot read; they describe the changes themselves."""
PAGES = sorted(
    {
        path.parents[1]
        for path in RESULTS.glob("*/*/config.json")
        if path.parents[1].name not in OLDER
    }
)
STUDIES: dict[str, Study] = {
    "a2c-on-popgym": which_learner.a2c_on_popgym(),
    "arelit-tmaze": arelit_tmaze.STUDY,
    "attention-below": steps_back.elsewhere(),
    "convolution-and-counts": steps_back.counts(),
    "step-number": steps_back.step(),
    "attention-or-average-rewards": attention_or_average.distributed(),
    "chain-of-sac": which_learner.chain_of_sac(),
    "critic-memory": critic_memory.critic_memory(),
    "critic-only": critic_only.critic_only(),
    "endless-tmaze": hard_tmazes.endless(),
    "gtrxl-forgets": gtrxl_forgets.forgetting(),
    "identity-at-start": identity_at_start.identity_at_start(),
    "initial-weights": initial_weights.STUDY,
    "jax-packages": jax_packages.packages(),
    "joint-encoder": joint_encoder.joint_encoder(),
    "learners-on-popgym": which_learner.popgym(),
    "key-to-door": key_to_door.key_to_door(),
    "lists": lists.lists(),
    "makkink-many-seeds": makkink.study(),
    "makkink-one-repair": makkink.study(edition="one-repair"),
    "makkink-published": makkink.study(),
    "makkink-repaired": makkink.study(edition="repaired"),
    "memory-rate": memory_rate.memory_rate(),
    "modern-memories": modern_memories.short(),
    "modern-memories-160": modern_memories.long(),
    "passive-tmaze": hard_tmazes.passive(),
    "passive-tmaze-1500": hard_tmazes.longest(),
    "pendulum-longer": which_learner.pendulum_longer(),
    "pendulum-without-positions": which_learner.pendulum("positions"),
    "pendulum-without-velocities": which_learner.pendulum("velocities"),
    "pixel-maze": pixel_maze.pixel_maze(),
    "popgym-easy-a2c": popgym.study(learner="a2c"),
    "popgym-easy-ppo": popgym.study(),
    "popgym-popjaxrl/bandit": bandit.bandit(),
    "popgym-popjaxrl": their_settings.their_settings(),
    "popgym-popjaxrl/ends": their_settings.ends(),
    "popgym-medium-ppo": replace(popgym.study("medium"), steps=5_000_000),
    "pqn": which_learner.pqn(),
    "pramanik-tmaze-10m": tmaze.study(),
    "pramanik-tmaze-published": tmaze.study(),
    "r2d2-defaults": which_learner.r2d2_defaults(),
    "residual-weight": residual_weight.residual_weight(),
    "s5-with-weight": residual_weight.in_all(),
    "s5-with-weight/first": residual_weight.first(),
    "shm-weights": shm_weights.shm_weights(),
    "short-to-long": short_to_long.further(),
    "silent-tasks": silent_tasks.silent_tasks(),
    "silent-tasks/again": silent_tasks.again(),
    "silent-tasks/elsewhere": silent_tasks.elsewhere(),
    "silent-tasks/escape": silent_tasks.escape(),
    "silent-tasks/longer": silent_tasks.longer(),
    "silent-tasks/rewards": silent_tasks.rewards(),
    "steps-back": steps_back.steps_back(),
    "tmaze-120-learners": which_learner.tmaze_120(),
    "tmaze-120-longer": which_learner.tmaze_120_longer(),
    "tmaze-200": tmaze_200.tmaze_200(),
    "trials/bandit-10": trials.STUDIES["bandit-10"],
    "told-modulo-7": steps_back.modulo(),
    "told-the-step": steps_back.told(),
    "what-counts": steps_back.parts(),
    "which-learner": which_learner.defaults(),
}
"""The studies that the commands of results pages run, by folder."""


def then(run: Path) -> TrainConfig:
    """The settings of a run; its digest reveals which options were its memory's defaults."""
    saved = json.loads((run / "config.json").read_text())
    now, former = (config_from_json(saved["config"], former=former) for former in (False, True))
    return now if now.digest() == saved["digest"] else former


def today(command: str) -> TrainConfig:
    """The settings of a `clew train` command."""
    args = shlex.split(command)
    default = default_command(args)
    prefer = f"--{default.config.algorithm}."
    read = parse(TrainCommand, args, command="train", about="", default=default, prefer=prefer)
    return read.config


def changed(then: TrainConfig, now: TrainConfig) -> dict[str, Any]:
    """Settings to which a command gives another value today, with their former values.

    A memory whose former default is a variant today counts as that memory with other options.
    """
    found = {name: old for name, (old, _) in differences(then, now).items()}
    for name in ("memory", "memory_options"):
        found.pop(name, None)
    defaults = {} if is_reference(now.memory) else options_of(now.memory)
    before, after = ({**defaults, **config.memory_options} for config in (then, now))
    names = before | after
    return found | {k: before.get(k) for k in names if before.get(k) != after.get(k)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_has_changed_since_is_named(page: Path) -> None:
    """Each setting in which a run differs from today's command is named, and no other."""
    stated = tomllib.loads((page / "README.settings.toml").read_text())
    runs = sorted(path.parent for path in page.glob("*/config.json"))
    assert [run.name for run in runs] == sorted(stated["commands"])
    for run in runs:
        named = [v for k, v in stated.get("changed", {}).items() if fnmatch.fnmatch(run.name, k)]
        expected = {name: value for each in named for name, value in each.items()}
        assert changed(then(run), today(stated["commands"][run.name])) == expected
    text = (page / "README.md").read_text()
    for each in stated.get("changed", {}).values():
        for name in each:
            assert f"`{name}" in text, f"{page.name} does not say that {name} has changed"


@pytest.mark.parametrize("page", STUDIES)
def test_rows_of_a_study_have_the_settings_of_today(page: str) -> None:
    study = STUDIES[page]
    rows = [line.row for line in json_lines.read(RESULTS / page / "results.jsonl")]
    digests = {(row["model"], row["setting"], row["digest"]) for row in rows}
    assert digests
    assert [row for row in digests if study.digest(*row[:2]) != row[2]] == []
    for name, model in study.models.items():
        memory = resolve(model.memory) if is_reference(model.memory) else model.memory
        assert set(model.memory_options) <= set(options_of(memory)), name


def test_defaults_of_memories_are_those_that_are_known() -> None:
    """A new memory, or a changed default, must be recorded."""
    known = json.loads(Path(__file__).with_name("memory_defaults.json").read_text())
    assert json.loads(json.dumps({name: options_of(name) for name in MEMORIES})) == known
