"""Every kind of fault: a function that injects one and returns the outcome.

A kind returns `SURVIVED` if the run continued or was resumed intact, `NO_EFFECT` if the fault had
no effect, or the line with which something was refused; it raises `Lost` or `Accepted`, or lets any
other exception escape.
"""

import random
from collections.abc import Callable

from faults import (
    changes,
    exports,
    hosts,
    kernels,
    processes,
    programs,
    replay,
    stored,
    sweeps,
    system,
)
from faults.bench import Bench

Kind = Callable[[Bench, random.Random], str]

PROCESSES: tuple[Kind, ...] = (
    processes.kill,
    processes.kill_early,
    processes.kill_twice,
    replay.kill_while_a_replay_is_written,
    processes.stop_signals,
    processes.closed_pipe,
    processes.kill_hosted,
    processes.signals_to_hosted,
    processes.kill_while_hanging,
    processes.few_descriptors,
    processes.in_use,
    processes.full_file_system,
    hosts.kill_worker,
    hosts.environment,
    hosts.wrong_values,
    kernels.damaged_kernels,
    kernels.kernels_of_others,
    kernels.killed_build,
    changes.change_of_the_process,
    changes.name_and_locale,
    sweeps.killed_sweep,
)
"""Faults with their own processes, some seconds each: one per turn."""
RUNS: tuple[Kind, ...] = (
    system.files_may_not_grow,
    system.unread_output,
    system.removed_folder,
    system.moved_folder,
    system.error_of_a_listener,
    stored.damaged_checkpoint,
    stored.foreign_checkpoint,
    stored.renamed_checkpoint,
    stored.something_in_place_of_a_checkpoint,
    stored.all_checkpoints_damaged,
    stored.no_file,
    replay.damaged_replay,
    replay.replay_of_another_checkpoint,
    replay.all_replays_damaged,
    exports.greedy_export,
    exports.names_in_cpp,
    programs.damaged_programs,
    programs.place_of_programs,
    sweeps.row_of_a_sweep,
    sweeps.code_in_a_sweep,
    sweeps.database_of_a_sweep,
    sweeps.file_of_a_sweep,
)
"""Faults of a run in this process, about a second each: two per turn."""
FILES: tuple[Kind, ...] = (
    stored.bytes_of_a_checkpoint,
    stored.tail_of_a_checkpoint,
    stored.crafted_header,
    stored.damaged_rows,
    stored.damaged_config,
    stored.edited_config,
    stored.code_in_a_config,
    exports.bytes_of_an_export,
    exports.crafted_export,
    exports.crafted_episode,
    exports.way_of_an_export,
)
"""Faults of files alone, milliseconds each: fifty per turn."""
KINDS: dict[str, Kind] = {
    kind.__name__.replace("_", " "): kind for kind in (*FILES, *RUNS, *PROCESSES)
}
"""Every kind by name."""
A_TURN: dict[str, int] = {
    name: 1 if kind in PROCESSES else 2 if kind in RUNS else 50 for name, kind in KINDS.items()
}
"""Number of faults of a kind in one turn."""
