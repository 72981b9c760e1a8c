"""Memory models: one file a model, one interface for all.

`MEMORIES` is the list of them by name; `make_memory` builds one and checks its options. Of the
rest of the library it needs only the errors.
"""

import inspect
from typing import Any

from jaxtyping import PRNGKeyArray

from clew.errors import unknown_name
from clew.memory.arelit import AReLiT
from clew.memory.base import AbstractMemory, scan_steps, select
from clew.memory.gru import GRU
from clew.memory.gtrxl import GTrXL
from clew.memory.integrated import Integrated
from clew.memory.linear_transformer import LinearTransformer
from clew.memory.lstm import LSTM
from clew.memory.none import NoMemory
from clew.memory.parts.maps import MemoryMap
from clew.memory.relit import ReLiT
from clew.memory.rezero import ReZero
from clew.memory.transformer import Transformer
from clew.memory.transformer_xl import TransformerXL
from clew.memory.universal import Universal

MEMORIES: dict[str, type[AbstractMemory]] = {
    "none": NoMemory,
    "lstm": LSTM,
    "gru": GRU,
    "transformer": Transformer,
    "transformer_xl": TransformerXL,
    "gtrxl": GTrXL,
    "rezero": ReZero,
    "universal": Universal,
    "integrated": Integrated,
    "linear_transformer": LinearTransformer,
    "relit": ReLiT,
    "arelit": AReLiT,
}

__all__ = [
    "MEMORIES",
    "AbstractMemory",
    "MemoryMap",
    "make_memory",
    "options_of",
    "scan_steps",
    "select",
]


def options_of(name: str) -> dict[str, Any]:
    """The options of the memory called `name`, with their defaults.

    Raises:
        UserError: if there is no memory of that name.
    """
    if name not in MEMORIES:
        raise unknown_name("memory", name, MEMORIES)
    parameters = inspect.signature(MEMORIES[name]).parameters
    return {n: p.default for n, p in parameters.items() if n not in ("input_size", "key")}


def make_memory(name: str, *, input_size: int, key: PRNGKeyArray, **options: Any) -> AbstractMemory:
    """Builds the memory called `name`.

    Args:
        name: one of `MEMORIES`.
        input_size: numbers in one observation.
        key: random key for the weights.
        **options: the model's own options; see its class or `clew models NAME`.

    Raises:
        UserError: for an unknown name or option, with the nearest valid ones, or for an
            impossible value.
    """
    valid = options_of(name)
    for option in options:
        if option not in valid:
            raise unknown_name(f"option of {name}", option, valid)
    return MEMORIES[name](input_size, key=key, **options)  # pyright: ignore[reportCallIssue]
