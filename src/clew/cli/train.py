"""`clew train`: trains a run from settings or a preset, or resumes one."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import tyro

from clew.agents.learners import LEARNERS
from clew.cli.live import listener
from clew.cli.parse import parse, value_before_parsing
from clew.errors import UserError
from clew.interact import default_settings
from clew.memory import MEMORIES, options_of
from clew.run import folder, trust
from clew.run.config import TrainConfig, unused
from clew.run.defaults import DefaultOptions, choose_algorithm, memory_defaults
from clew.run.machine import available_cores
from clew.run.sharding import open_devices

ABOUT = """Trains agents and records the run in a folder: config.json, metrics.jsonl, checkpoints,
summary.json and curve.png. Ctrl-C saves and says how to resume."""


@dataclass(frozen=True)
class TrainingOptions:
    """Options that commands with training share."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    """Settings of training."""


@dataclass(frozen=True)
class Memories(TrainingOptions):
    """Options of commands that train several memories."""

    memories: tuple[str, ...] = ()
    """Memories to compare, by name or module:Class, in place of --memory. LABEL=module:Class gives
    one a label."""
    trust: bool = False
    """With --start-from: import the code that the settings of that run name, even if this machine
    has not trained it."""
    json: bool = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class TrainCommand(TrainingOptions):
    """Options of `clew train`."""

    resume: str = ""
    """Resume this run, a folder or a name. It keeps its settings, except that --steps may be raised
    and --loggers, --devices, --host settings and --ray may be changed."""
    ray: str = ""
    """Actors on a Ray cluster, with runner async: auto, local, HOST:PORT or ray://HOST:PORT. Short
    for --asynchronous.ray."""
    trust: bool = False
    """With --resume or --start-from: import the code that the settings of that run name, even if
    this machine has not trained it."""
    cpu_threads: int = 0
    """Threads to compute on; 0 takes one for each core. If several runs share a machine, give each
    its share of the cores."""


def main(args: list[str]) -> int:
    """Trains, and prints the result."""
    _refuse_several(args)
    default = default_command(args)
    prefer = default.config.algorithm, *LEARNERS
    command = parse(
        TrainCommand, args, command="train", about=ABOUT, default=default, prefer=prefer
    )
    config = command.config
    if config.preset:
        config = _within_preset(config, default.config)
    if command.trust and not (command.resume or config.start_from):
        raise UserError("--trust is for the run of --resume or --start-from, and neither is given")
    if command.ray:
        place = dataclasses.replace(config.asynchronous, ray=command.ray)
        config = dataclasses.replace(config, asynchronous=place)
    open_devices(config.devices, checked_threads(command.cpu_threads))
    from clew.run.train import train  # start: JAX takes a second

    resume = folder.find_run(command.resume, config.run_dir) if command.resume else False
    progress = listener()
    if not resume:
        for line in (*on_algorithm(args, config), *on_sizes(config)):
            progress.message(line)
    else:
        trust.require(resume, folder.read_config(resume), trust=command.trust)
    result = train(config, resume=resume, progress=progress, trust=command.trust)
    print(result)
    return 0


Options = TypeVar("Options", bound=Memories)


def parse_training(
    kind: type[Options], args: list[str], *, command: str, about: str, **changes: Any
) -> Options:
    """Reads the options of a command that trains several memories.

    `changes` are settings whose defaults differ from those of `clew train`.

    Raises:
        UserError: as `parse`, or if --memory is given beside --memories, or --trust without a run
            to start from.
    """
    config = dataclasses.replace(default_command(args).config, **changes)
    prefer = [config.algorithm]
    parsed = parse(kind, args, command=command, about=about, default=kind(config), prefer=prefer)
    if parsed.memories and value_before_parsing(args, "--memory") is not None:
        raise UserError("--memories names all memories: leave out --memory")
    if parsed.trust and not parsed.config.start_from:
        raise UserError("--trust is for the run of --start-from, which is not given")
    if not config.preset:
        return parsed
    made = _within_preset(parsed.config, config)
    if parsed.memories:  # the preset's options are those of its own memory
        made = dataclasses.replace(made, memory_options=parsed.config.memory_options)
    return dataclasses.replace(parsed, config=made)


def default_command(args: list[str]) -> TrainCommand:
    """The settings for everything that the command line does not set."""
    name = value_before_parsing(args, "--preset")
    resume = value_before_parsing(args, "--resume")
    if name and resume:
        raise UserError("--preset begins a run and --resume continues one: give only one of them")
    if resume and value_before_parsing(args, "--name"):
        raise UserError("--resume continues a run under its own name: leave out --name")
    if resume:
        run_dir = value_before_parsing(args, "--run-dir") or "runs"
        return TrainCommand(folder.read_config(folder.find_run(resume, run_dir)), resume)
    if name:
        from clew.lab.studies import preset  # start: the studies take 0.1 s

        return TrainCommand(preset(name))
    # The algorithm that TrainConfig would choose if it knew the other options.
    algorithm = value_before_parsing(args, "--algorithm") or "auto"
    env = value_before_parsing(args, "--env") or TrainConfig.env
    given = [n for n in LEARNERS if any(token.startswith(f"--{n}.") for token in args)]
    chosen = choose_algorithm(env, given)
    # "auto" also chooses wrappers and encoder if the algorithm is its first choice.
    if algorithm == "auto" and chosen != choose_algorithm(env, ()):
        algorithm = chosen
    return TrainCommand(TrainConfig(env=env, algorithm=algorithm))


def _refuse_several(args: list[str]) -> None:
    for place, word in enumerate(args):
        names = [w for w in args[place + 1 : place + 3] if word == "--memory"]
        if len(names) == 2 and not any(name.startswith("-") for name in names):
            raise UserError(
                f"clew train trains one memory; for several, use clew compare --memories "
                f"{' '.join(names)} with the same options"
            )


def on_algorithm(args: list[str], config: TrainConfig, learners: Sequence[str] = ()) -> list[str]:
    """A line if the given options chose another algorithm, encoder or scale than the best fit.

    `learners` are those in use, if there are several.

    Raises:
        UserError: for a setting of an algorithm that is not in use.
    """
    given = {n: t for n in LEARNERS for t in args if t.startswith(f"--{n}.")}
    for name, token in given.items():
        if name not in (learners or (config.algorithm,)):
            raise UserError(unused(token.split("=")[0], name, config))
    usual, left = choose_algorithm(config.env, ()), _left_out(args, config)
    if config.preset:
        return []
    if value_before_parsing(args, "--algorithm"):
        return [f"an algorithm is named{left}"] if left else []
    if config.algorithm == usual:
        return []
    chosen = f"algorithm {config.algorithm}, because its settings are given"
    return [f"{chosen} (without them {config.env} is learned by {usual}){left}"]


def _left_out(args: Sequence[str], config: TrainConfig) -> str:
    """The end of a line if encoder or reward scale differ from those of "auto", with the options
    that bring them back; else empty."""
    fit, given = default_settings(config.env), " ".join(args)
    left: dict[str, str] = {}
    if fit.encoder not in (None, config.network.encoder) and "--network.encoder" not in given:
        left["an encoder"] = f"--network.encoder {fit.encoder}"
    scaled = config.wrappers.normalise_rewards or "reward-scale" in given
    if fit.normalise_rewards and not scaled and "normalise-rewards" not in given:
        replays = "replay_steps" in config.learning.__dataclass_fields__
        option = "reward-scale FACTOR" if replays else "normalise-rewards"
        left["scaled rewards"] = f"--wrappers.{option}"
    if not left:
        return ""
    what, add = " and ".join(left), " ".join(left.values())
    return f", which turns off other defaults of {config.env}: for {what} add {add}"


def on_sizes(config: TrainConfig, memories: Sequence[str] = ()) -> list[str]:
    """A line for each memory that has its own default sizes because some options were given.

    `memories` are those to train, if there are several.
    """
    given = config.memory_options
    known = {name: options_of(name) for name in memories or (config.memory,) if name in MEMORIES}
    if config.preset or isinstance(given, DefaultOptions):
        return []
    if not given.keys() <= set().union(*known.values()):
        return []  # an error will say so
    lines = []
    for memory, options in known.items():
        usual = {n: v for n, v in memory_defaults(memory).items() if n not in given}
        if differing := [name for name in usual if options[name] != usual[name]]:
            own, without = (", ".join(f"{n}={v[n]}" for n in differing) for v in (options, usual))
            lines.append(
                f"{memory} has {own}, its own defaults; without any memory option: {without}"
            )
    return lines


def _within_preset(config: TrainConfig, preset: TrainConfig) -> TrainConfig:
    """Adds the given options to the preset's, if memory and task are the preset's."""
    changes = {}
    if config.memory == preset.memory:
        changes["memory_options"] = preset.memory_options | config.memory_options
    if config.env == preset.env:
        changes["env_options"] = preset.env_options | config.env_options
    return dataclasses.replace(config, **changes)


def checked_threads(count: int) -> int:
    """The number of threads to compute on, 0 for one on each core.

    Raises:
        UserError: if there are fewer cores.
    """
    if not 0 <= count <= available_cores():
        raise UserError(f"cpu_threads must be between 1 and {available_cores()}, got {count}")
    return count
