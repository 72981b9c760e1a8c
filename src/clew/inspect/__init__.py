"""What a trained agent remembers: influence of the past, memory length, probes, maps.

    from clew.inspect import Questions, inspect_run, write_inspection

    found = inspect_run("runs/maze", Questions(every=1))
    print(found.memory_lengths["gradient", "policy"].quartiles)
    write_inspection(found, "maze")

For agents and environments without a run of `clew train`, use `inspect_agent` with `Episodes`, made
by `episodes` of a task (`clew.interact.task.Task`) or by any loop. For single chunks, use
`gradient_influence` and `occlusion_influence`.
"""

from clew.inspect.files import to_json, write_tables
from clew.inspect.influence import (
    Influence,
    episode_influence,
    gradient_influence,
    occlusion_influence,
)
from clew.inspect.inspection import Inspection, inspect_agent
from clew.inspect.lengths import MemoryLength, by_lag, memory_length, shares
from clew.inspect.maps import MapSummary, summarise_maps
from clew.inspect.page import Written, write_comparison, write_inspection
from clew.inspect.probe import Probe, Readings, held_out, probe_steps, read_episodes
from clew.inspect.questions import Questions, choose_labels
from clew.inspect.run import inspect_run
from clew.interact.episodes import Episodes

__all__ = [
    "Episodes",
    "Influence",
    "Inspection",
    "MemoryLength",
    "Probe",
    "Questions",
    "Readings",
    "MapSummary",
    "Written",
    "occlusion_influence",
    "by_lag",
    "choose_labels",
    "episode_influence",
    "gradient_influence",
    "held_out",
    "inspect_agent",
    "inspect_run",
    "memory_length",
    "probe_steps",
    "read_episodes",
    "shares",
    "summarise_maps",
    "to_json",
    "write_comparison",
    "write_inspection",
    "write_tables",
]
