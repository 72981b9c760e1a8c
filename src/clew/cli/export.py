"""`clew export`: a run's policy as files that need no JAX."""

from dataclasses import dataclass, replace
from pathlib import Path

from clew.cli.on_run import RunOptions, parse_run
from clew.cli.tables import print_json
from clew.deploy import export
from clew.errors import UserError, require_at_least, require_rate
from clew.run.folder import CONFIG

ABOUT = """Exports the policy of a run as a folder of files that run with NumPy alone, and as one
zip. --verify checks the files of an export, replays its golden episode (observations and outputs
recorded at export) and compiles its C++ header, if there is a compiler."""


@dataclass(frozen=True)
class ExportCommand(RunOptions):
    """Options of `clew export`."""

    output: str = ""
    """Folder to write, with a zip beside it; by default export/ in the run's folder."""
    verify: bool = False
    """Check an export instead: RUN is its folder or zip. Compares every digest, replays the golden
    episode with NumPy and compiles the C++ header, if there is a compiler."""
    seed_index: int = 0
    """Which of the run's seeds, from 0."""
    value: bool = False
    """Add the value estimate as an output."""
    episodes: int = 0
    """Fresh episodes to play; their score is written to the manifest."""
    control_rate: float | None = None
    """How often the policy will be called, in Hz; written to the manifest."""
    json: bool = False
    """Print JSON instead of text."""


def main(args: list[str]) -> int:
    """Exports and prints what was written, or verifies."""
    command = parse_run(ExportCommand, args, command="export", about=ABOUT)
    if command.verify:
        return _verify(command)
    require_at_least("seed", command.seed, 0)
    if command.control_rate is not None:
        require_rate("control_rate", command.control_rate, positive=True)
    found = export.export(
        command.run,
        command.output,
        seed_index=command.seed_index,
        checkpoint=command.checkpoint,
        value=command.value,
        episodes=command.episodes,
        control_rate=command.control_rate,
        seed=command.seed,
        trust=command.trust,
    )
    if command.json:
        print_json(found)
        return 0
    print(
        f"policy {found.manifest['policy']}: {found.operations} operations, "
        f"golden episode replayed with NumPy to {found.deviation:.2g}"
    )
    for name, duty in found.manifest["wrappers"]["duty_of_the_caller"].items():
        print(f"left to the caller: {name} = {duty}")
    if "onnx" not in found.manifest:
        print(
            'without policy.onnx, for which the package onnx is missing: pip install "clew[onnx]"'
        )
    print(f"folder: {found.folder}\nzip: {found.archive}")
    return 0


def _verify(command: ExportCommand) -> int:
    """Checks an export and prints how far its golden episode deviates."""
    if replace(command, json=False) != ExportCommand(run=command.run, verify=True):
        raise UserError("--verify checks an export as it is: leave out all other options")
    if (Path(command.run) / CONFIG).is_file():
        raise UserError(f"{command.run} is a run: give the folder or zip of its export")
    model, deviation, header = export.verify(command.run)
    if command.json:
        found = {"export": command.run, "policy": model.policy, "deviation": deviation}
        print_json(found | {"header": header})
    else:
        deviates = f"the golden episode deviates by {deviation:.2g} at most"
        print(f"{command.run}: every file is intact; {deviates}; {header}")
    return 0
