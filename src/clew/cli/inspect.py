"""`clew inspect`: what a run's agent remembers."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from clew.cli.on_run import PlayOptions, shared, which_run
from clew.cli.parse import parse
from clew.cli.tables import print_json, print_table
from clew.errors import UserError

if TYPE_CHECKING:
    from clew.inspect import Inspection

ABOUT = """Shows what a trained agent remembers: which past observations its decisions rest on (by
gradient and by occlusion), how far back they lie, what a linear probe reads from the memory at
every step, and the attention and gates. Writes a page of figures, and all numbers as JSON and
CSV."""


@dataclass(frozen=True)
class InspectCommand(PlayOptions):
    """Options of `clew inspect`."""

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN ...")] = ()
    """Folders of runs, or their names in runs/; several are also compared."""
    episodes: int = 200
    """Fresh episodes to play and probe."""
    influence_episodes: int = 16
    """Number of these episodes in which a decision is explained."""
    every: int = 0
    """Steps between two decisions of the map; 0 chooses about 24 decisions."""
    at: int = -1
    """Step of the decision to explain, from 0; -1 is the last one of an episode."""
    reference: Literal["zeros", "mean"] = "zeros"
    """What replaces an occluded observation: zeros, or the mean of the episode."""
    share: float = 0.9
    """Fraction of the influence that the memory length covers."""
    probe: tuple[str, ...] = field(default_factory=tuple)
    """Labels to probe: those of the task, or "observation[i]", for a dict "NAME" or "NAME[i]"; by
    default all labels of the task."""
    actions: Literal["greedy", "sampled"] = "greedy"
    """How actions are chosen."""
    max_steps: int = 1000
    """Most steps of an episode; longer ones are left out."""
    seed_index: int = 0
    """Which of a run's seeds, from 0."""
    output: str = ""
    """Folder to write to; by default inspect/ in the run's folder. With several runs, each gets a
    subfolder of its name."""
    json: bool = False
    """Print all numbers as JSON instead of a table."""


def main(args: list[str]) -> int:
    """Inspects, writes the pages and prints the main numbers."""
    command = parse(InspectCommand, args, command="inspect", about=ABOUT)
    if not command.runs:
        raise which_run("inspect")
    from clew import inspect  # start: JAX takes a second
    from clew.run.folder import find_run  # start: JAX takes a second

    paths = [find_run(run) for run in command.runs]
    if command.output and len({path.name for path in paths}) < len(paths):
        raise UserError("runs with the same name cannot share an --output; leave it out")
    several, pages = [], []
    for path in paths:
        found = inspect.inspect_run(
            path,
            inspect.Questions(**shared(command, inspect.Questions)),
            episodes=command.episodes,
            greedy=command.actions == "greedy",
            max_steps=command.max_steps,
            seed=command.seed,
            seed_index=command.seed_index,
            checkpoint=command.checkpoint,
            trust=command.trust,
        )
        several.append(found)
        pages.append(inspect.write_inspection(found, _place(command, path)).picture)
    if len(several) > 1:
        place = Path(command.output) if command.output else paths[0].parent
        pages.append(inspect.write_comparison(several, place))
    if command.json:
        found = [inspect.to_json(found) for found in several]
        print_json(found if several[1:] else found[0])
        return 0
    print_table("", ["run", *_COLUMNS], [_row(found) for found in several], _note(several[0]))
    for page in pages:
        print(f"picture: {page}")
    return 0


_COLUMNS = ("success", "length", "by gradient", "by occlusion", "in the state", "in the output")


def _place(command: InspectCommand, path: Path) -> Path:
    if not command.output:
        return path / "inspect"
    return Path(command.output) / path.name if len(command.runs) > 1 else Path(command.output)


def _row(found: "Inspection") -> list[str]:
    def length(way: str) -> str:
        low, half, high = found.memory_lengths[way, "policy"].quartiles
        if math.isnan(half):
            return "none"
        return f"{half:.0f} ({low:.0f} to {high:.0f}), {found.first_share(way):.0%}"

    def read(source: str) -> str:
        probe = next((p for p in found.probes if p.source == source and p.steps), None)
        return "" if probe is None else format(probe.accuracy[-1], ".2f")

    success, steps = (found.metrics.get(name) for name in ("success", "length"))
    return [
        found.name,
        "" if success is None else f"{success:.2f}",
        "" if steps is None else f"{steps:.0f}",
        length("gradient"),
        length("occlusion"),
        read("state"),
        read("output"),
    ]


def _note(found: "Inspection") -> str:
    label = next((p.label for p in found.probes if p.steps), "")
    read = f"{label} read at the last step, held-out accuracy with its 95% interval"
    return (
        f"by ...: steps back that hold {found.questions.share:.0%} of the decision's influence, "
        f"median (quartiles) of {len(found.lengths)} episodes; the first observation's share; "
        "none if this method finds no influence; gradients find none in categories\n"
        f"in ...: {read if label else 'no probe, since no label has enough episodes of two kinds'}"
    )
