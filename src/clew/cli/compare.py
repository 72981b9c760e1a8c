"""`clew compare`: plots learning curves of several runs together, or trains the runs first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from clew.cli.live import listener
from clew.cli.parse import parse, value_before_parsing
from clew.cli.tables import print_json, print_table
from clew.cli.train import Memories, checked_threads, on_algorithm, on_sizes, parse_training
from clew.errors import UserError
from clew.memory import MEMORIES
from clew.output import say
from clew.run import folder
from clew.run.metrics import Row, final_text, read_rows, summarise
from clew.run.sharding import open_devices
from clew.stats.intervals import over_seeds

ABOUT = """Plots the learning curves of several runs in one picture, and lists the scores of the
last tenth of each training; runs that are still training can be compared too. With --memories it
first trains these memories, all with the same settings, and adds a page and the probability that
one is better than another: clew compare --env ENV --memories lstm gru none --seeds 5 --steps 1e6.
With --learners it trains one memory with several learners, each with its own settings
(--ppo.epochs 2): clew compare --env ENV --learners ppo pqn r2d2 --memory gru. To resume a stopped
comparison, run the same command again. --memories and --learners take the options of clew train:
clew compare --memories gru --help."""

METRICS = ("success", "return")
SEEDS = 5
"""Agents of each memory or learner that are trained, unless --seeds is given."""
SEVERAL = ("--memories", "--learners")
SUMMARY = ("env", "memory", "seeds", "steps", "seconds", "rate", "final")


@dataclass(frozen=True)
class CompareCommand:
    """Options of `clew compare`."""

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN ...")] = ()
    """The runs' folders, or their names in --run-dir."""
    run_dir: str = "runs"
    """Folder that holds the runs."""
    out: str = ""
    """The picture, a .png, .pdf or .svg file; by default compare.png in --run-dir."""
    title: str = ""
    """Title of the picture; by default the names of the tasks."""
    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class TrainingCommand(Memories):
    """Options of `clew compare` with training."""

    learners: tuple[str, ...] = ()
    """Learners to compare, by name or module:Class, in place of --algorithm."""
    cpu_threads: int = 0
    """Threads to compute on; 0 takes one for each core."""


def main(args: list[str]) -> int:
    """Draws the picture and prints the table."""
    if any(word.split("=")[0] in SEVERAL for word in args):
        return compare_trained(args)
    command = parse(CompareCommand, args, command="compare", about=ABOUT)
    if not command.runs:
        raise UserError("which runs? clew compare RUN RUN ...; clew runs lists them")
    out = Path(command.out or Path(command.run_dir) / "compare.png")
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"--out must be a .png, .pdf or .svg file, got {command.out}")
    from clew.report.curves import plot_runs  # start: matplotlib takes 0.4 s

    found = {name: _find(name, command) for name in command.runs}
    rows: dict[str, list[Row]] = {}
    summaries = {}
    for name, path in found.items():
        rows[name], config = read_rows(path), folder.read_config(path)
        # Not the run's own summary, because the run may still be training.
        seconds = rows[name][-1]["seconds"]
        whole = summarise(rows[name], config, seconds=seconds, parameters=0)
        summaries[name] = {key: whole[key] for key in SUMMARY}
    labels = _labels(summaries)
    title = command.title or ", ".join(sorted({s["env"] for s in summaries.values()}))
    picture = plot_runs({labels[name]: rows[name] for name in found}, out, title)
    if command.json:
        print_json({"runs": summaries, "picture": str(picture)})
        return 0
    metrics = [m for m in METRICS if any(m in s["final"] for s in summaries.values())]
    short = _short(summaries)
    cells = [_row(short[name], summary, metrics) for name, summary in summaries.items()]
    columns = ["run", "memory", "task", "seeds", "steps", *metrics]
    several = [summary["seeds"] for summary in summaries.values() if summary["seeds"] > 1]
    note = f"[..] 95% interval, over {over_seeds(min(several))}" if several else ""
    if len({summary["env"] for summary in summaries.values()}) > 1:
        say("warning: the runs have different tasks, so their numbers are hardly comparable")
    print_table("the last tenth of training", columns, cells, note)
    print(f"picture: {picture}")
    return 0


def _find(name: str, command: CompareCommand) -> Path:
    try:
        return folder.find_run(name, command.run_dir)
    except UserError:
        if name in MEMORIES:
            raise UserError(
                f"there is no run {name!r}; to train and compare memories: clew compare --memories "
                f"{' '.join(command.runs)} --env TASK"
            ) from None
        raise


def _labels(summaries: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Labels of the curves: the memories, or the runs if two runs have the same memory."""
    memories = {name: summary["memory"] for name, summary in summaries.items()}
    return memories if len(set(memories.values())) == len(memories) else _short(summaries)


def _short(names: Iterable[str]) -> dict[str, str]:
    """Runs by the names of their folders, or as they were given if two of these are the same."""
    short = {name: Path(name).name for name in names}
    return short if len(set(short.values())) == len(short) else {name: name for name in short}


def _row(name: str, summary: dict[str, Any], metrics: Sequence[str]) -> list[str]:
    ends = [final_text(summary["final"].get(metric)) for metric in metrics]
    seeds, steps = str(summary["seeds"]), f"{summary['steps']:,}"
    return [name, summary["memory"], summary["env"], seeds, steps, *ends]


def compare_trained(args: list[str]) -> int:
    """Trains several memories or learners, and prints the scores of each."""
    first = value_before_parsing(args, "--learners")
    if first and value_before_parsing(args, "--algorithm") is not None:
        raise UserError("--learners names all learners: leave out --algorithm")
    words = [*args, "--algorithm", first] if first else args  # all take this one's defaults
    command = parse_training(TrainingCommand, words, command="compare", about=ABOUT, seeds=SEEDS)
    if command.memories and command.learners:
        raise UserError("give either --memories or --learners, not both")
    config = command.config
    for line in on_algorithm(words, config, command.learners) + on_sizes(config, command.memories):
        say(line)
    from clew.lab import comparison  # start: matplotlib takes 0.4 s

    open_devices(config.devices, checked_threads(command.cpu_threads))
    if command.learners:
        kind = comparison.LEARNER
        configs = comparison.learners_of(config, command.learners)
    else:
        kind = comparison.MEMORY
        configs = comparison.settings_of(config, command.memories)
    found = comparison.compare(configs, listener, kind, trust=command.trust)
    if command.json:
        better = {f"{a} > {b}": interval for (a, b), interval in found.better.items()}
        print_json({"runs": found.summaries, "better": better, "page": str(found.page)})
        return 0
    finals = {name: summary["final"] for name, summary in found.summaries.items()}
    metrics = [n for n in METRICS if any(map(final_text, (f.get(n) for f in finals.values())))]
    rows = [
        [m, *(final_text(run[part].get(n)) for n in metrics for part in ("final", "whole"))]
        for m, run in found.summaries.items()
    ]
    columns = [name for n in metrics for name in (n, f"{n}, all steps")]
    note = f"[..] 95% interval, over {over_seeds(config.seeds)}" if config.seeds > 1 else ""
    note = f"{note}; all steps: mean of the learning curve".lstrip("; ")
    note = note if metrics else "no episode ended in it: train for longer, or set a time limit"
    print_table("the last tenth of training", [kind.one, *columns], rows, note)
    if found.better:
        rows = [[f"{a} > {b}", format(p, ".2f")] for (a, b), p in found.better.items()]
        print_table("", [f"a seed's {found.metric} is higher", "probability"], rows)
    print(f"picture: {found.picture}\npage: {found.page}")
    return 0
