"""Converts settings and arrays of runs that earlier versions saved to today's names."""

import re
from typing import Any, NamedTuple

import numpy as np

from clew.memory import MEMORIES


class Variant(NamedTuple):
    """A model that took over options of a memory, for variants that users would not choose."""

    name: str
    kept: dict[str, tuple[Any, ...]]
    """Values of those options that the memory itself still has; with a single value, the memory no
    longer has the option."""


_BLOCK: dict[str, tuple[Any, ...]] = {
    "blend": ("mean",),
    "unreached": ("copy",),
    "inner_residual": (False,),
    "crossed_states": (False,),
}
_VARIANTS = {
    "lstm": Variant(
        "clew.lab.studies.models:PublishedLSTM", {"all_biases": (False,), "init_per": ("gate",)}
    ),
    "gru": Variant(
        "clew.lab.studies.models:PublishedGRU", {"all_biases": (False,), "init_per": ("gate",)}
    ),
    "transformer_xl": Variant(
        "clew.lab.studies.makkink.models:PublishedTransformerXL", {"inner_residual": (False,)}
    ),
    "gtrxl": Variant(
        "clew.lab.studies.models:PublishedGTrXL",
        {
            "gate": ("gru", "residual"),
            "inner_residual": (False,),
            "query_norm": (True,),
            "banded": (True,),
        },
    ),
    "rezero": Variant(
        "clew.lab.studies.makkink.models:PublishedReZero",
        {"gate": ("residual",), "inner_residual": (False,)},
    ),
    "universal": Variant(
        "clew.lab.studies.makkink.models:PublishedUniversal",
        {"gate": ("residual",), "residual_weight": (False,), **_BLOCK},
    ),
    "integrated": Variant(
        "clew.lab.studies.makkink.models:PublishedIntegrated",
        {"gate": ("gru",), "norm": ("none",), "residual_weight": (True,), **_BLOCK},
    ),
    "relit": Variant(
        "clew.lab.studies.tmaze.models:PublishedReLiT",
        {
            "decay": ("separate",),
            "query": ("single",),
            "embedding_relu": (True,),
            "init_per": ("head",),
        },
    ),
    "arelit": Variant(
        "clew.lab.studies.tmaze.models:PublishedAReLiT",
        {
            "frequencies": ("half_wave", "full_wave", "odd_wave"),
            "scale": ("derived",),
            "tick": ("episode",),
            "init_per": ("product",),
        },
    ),
}
"""By memory: the model that its saved runs with other values of such options belong to now. The
names of results keep the old memory and options."""
_NEW_DEFAULTS = {
    "lstm": {"init_per": "gate"},
    "gru": {"init_per": "gate"},
    "relit": {"init_per": "head"},
    "arelit": {"chrono": 256},
}
"""Options of memories whose default has changed."""
_FORMER: dict[str, Any] = {"init_per": "product", "chrono": 0}
"""Values of memory options from before they could be set; names of results do not have them."""
_MEMORY_OPTIONS = {
    ("scan", "auto"): ("backend", "auto"),
    ("scan", "kernel"): ("backend", "kernel"),
    ("scan", "steps"): ("backend", "xla"),
    ("frequencies", "thesis"): ("frequencies", "printed"),
    ("scale", "thesis"): ("scale", "printed"),
}
"""Options of memories in saved runs, with their values, and the present names of both."""


def migrate_settings(values: dict[str, Any], memory: str, *, former: bool) -> dict[str, Any]:
    """The settings of a saved run as today's version would have saved them.

    Args:
        values: as they were saved.
        memory: the memory of runs that do not name one.
        former: whether the file is from the time when memories had other default options. It is if
            it has no threads.
    """
    # The first runs did not name their algorithm, since there was only one.
    values = {"algorithm": "a2c", "devices": 1} | values
    before = "device_threads" not in values
    if before:  # when 0 was one device
        values |= {"devices": values["devices"] or 1, "device_threads": "all"}
    values |= _of_network(values.get("network"), values.get("sac"))
    memory, options = values.get("memory", memory), values.get("memory_options")
    if not isinstance(memory, str) or not isinstance(options, dict):
        return values  # the caller raises the error
    changed = _NEW_DEFAULTS.get(memory, {})
    own = {option: _FORMER[option] for option in changed if before or former}
    return values | _of_variant(memory, own | _renamed(options, _MEMORY_OPTIONS))


def _of_network(network: Any, sac: Any) -> dict[str, Any]:
    """The groups of settings, with the critic's memory in the network's, not in SAC's."""
    name = "memory_of_critic"
    if not isinstance(network, dict) or not isinstance(sac, dict) or name not in sac:
        return {}
    rest = {setting: value for setting, value in sac.items() if setting != name}
    return {"network": network | {name: sac[name]}, "sac": rest}


def lasting_groups(values: dict[str, Any]) -> dict[str, Any]:
    """The groups of a SAC run's settings as results keep them in their names."""
    name, network = "memory_of_critic", values["network"]
    rest = {setting: value for setting, value in network.items() if setting != name}
    return {"network": rest, "sac": values["sac"] | {name: network.get(name, "shared")}}


def lasting_memory(memory: str, options: dict[str, Any]) -> dict[str, Any]:
    """The memory and its options by the names that results keep across versions."""
    before = {new: old for old, new in _MEMORY_OPTIONS.items()}
    names = {variant.name: memory for memory, variant in _VARIANTS.items()}
    memory = names.get(memory, memory)
    options = _NEW_DEFAULTS.get(memory, {}) | _renamed(options, before)
    if memory in MEMORIES:
        options = {k: v for k, v in options.items() if (k, v) not in _FORMER.items()}
    return {"memory": memory, "memory_options": options}


def _renamed(
    options: dict[str, Any], names: dict[tuple[str, str], tuple[str, str]]
) -> dict[str, Any]:
    """Options of a memory, with those in `names` under their other name and value."""
    return dict(
        names.get((k, v), (k, v)) if isinstance(v, str) else (k, v) for k, v in options.items()
    )


def _of_variant(memory: str, options: dict[str, Any]) -> dict[str, Any]:
    """The memory of a saved run, or the variant that now has its options; see `_VARIANTS`."""
    variant = _VARIANTS.get(memory)
    if variant is None:
        return {"memory": memory, "memory_options": options}
    kept = variant.kept
    # The name of a result does not depend on which of these values an option has.
    neutral = [*_NEW_DEFAULTS.get(memory, {}).items(), *_FORMER.items()]
    for name, value in options.items():
        gone = len(kept.get(name, ())) == 1 and (name, value) not in neutral
        if gone or value not in kept.get(name, (value,)):
            return {"memory": variant.name, "memory_options": options}
    own = {name: value for name, value in options.items() if len(kept.get(name, ())) != 1}
    return {"memory": memory, "memory_options": own}


_LEAVES = (
    # At that time a learner's state was only that of its optimiser.
    (re.compile("^/seed/optimiser/"), "/seed/learner/optimiser/"),
    # At that time all agents were actor-critics; an optimiser's state has the agents' paths.
    (
        re.compile(
            r"^(/seed/agent|/seed/learner/optimiser/.*?/(?:mu|nu|trace))/(actor|critic|free)\b"
        ),
        r"\1/heads/\2",
    ),
    # At that time SAC's critics could have a network of their own, beside the agent.
    (re.compile(r"^(/seed/learner/optimiser/.*?/(?:mu|nu))/agent/"), r"\1/"),
)


def migrate_leaves(leaves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint by today's paths."""
    today = {}
    for path, leaf in leaves.items():
        for before, now in _LEAVES:
            path = before.sub(now, path)
        today[path] = leaf
    return _with_the_critics(today) if any(map(_OF_CRITICS.match, today)) else today


_OF_CRITICS = re.compile("^/seed/learner/others/critic/")
_TREES = (
    (re.compile("^/seed/agent/(encoder|memory)/"), 0),
    (re.compile("^/seed/learner/others/critic/(encoder|memory)/"), 1),
)


def _with_the_critics(leaves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of an agent whose critics had a network of their own in the learner's state.

    Such runs play as they did. The rest of the learner's state is left as it was, so they cannot be
    resumed.
    """
    plural = {"encoder": "encoders", "memory": "memories"}
    today = {}
    for path, leaf in leaves.items():
        for tree, number in _TREES:
            path = tree.sub(lambda m, n=number: f"/seed/agent/{m[1]}/{plural[m[1]]}/{n}/", path)
        today[path] = leaf
    critics = "/seed/agent/heads/critics/"
    own = {_OF_CRITICS.sub("/seed/agent/", path): leaf for path, leaf in today.items()}
    return today | {path: leaf for path, leaf in own.items() if path.startswith(critics)}
