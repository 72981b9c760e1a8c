"""Memory models: one file per model, one interface for all.

`MEMORIES` lists them by name; `make_memory` builds one and checks its options. The only other part
of the library that this package imports is `clew.errors`.
"""

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from clew.errors import UserError, call_own, one_line, parameters_of, unknown_name
from clew.memory.arelit import AReLiT
from clew.memory.base import AbstractMemory, scan_steps, select
from clew.memory.delta_product import DeltaProduct
from clew.memory.elman import Elman
from clew.memory.ffm import FFM
from clew.memory.frame_stack import FrameStack
from clew.memory.gated_delta_net import GatedDeltaNet
from clew.memory.gla import GLA
from clew.memory.gru import GRU
from clew.memory.gtrxl import GTrXL
from clew.memory.hybrid import Hybrid
from clew.memory.ind_rnn import IndRNN
from clew.memory.integrated import Integrated
from clew.memory.linear_transformer import LinearTransformer
from clew.memory.lmu import LMU
from clew.memory.lru import LRU
from clew.memory.lstm import LSTM
from clew.memory.mamba2 import Mamba2
from clew.memory.min_gru import MinGRU
from clew.memory.min_lstm import MinLSTM
from clew.memory.mlstm import MLSTM
from clew.memory.none import NoMemory
from clew.memory.parts.maps import MemoryMap
from clew.memory.position_mlp import PositionMLP
from clew.memory.relit import ReLiT
from clew.memory.retention import Retention
from clew.memory.rezero import ReZero
from clew.memory.rg_lru import RGLRU
from clew.memory.rwkv7 import RWKV7
from clew.memory.s5 import S5
from clew.memory.shm import SHM
from clew.memory.slstm import SLSTM
from clew.memory.transformer import Transformer
from clew.memory.transformer_xl import TransformerXL
from clew.memory.universal import Universal

MEMORIES: dict[str, type[AbstractMemory]] = {
    "none": NoMemory,
    "position_mlp": PositionMLP,
    "frame_stack": FrameStack,
    "elman": Elman,
    "ind_rnn": IndRNN,
    "lmu": LMU,
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
    "min_gru": MinGRU,
    "min_lstm": MinLSTM,
    "lru": LRU,
    "rg_lru": RGLRU,
    "s5": S5,
    "gated_delta_net": GatedDeltaNet,
    "delta_product": DeltaProduct,
    "mamba2": Mamba2,
    "retention": Retention,
    "gla": GLA,
    "rwkv7": RWKV7,
    "mlstm": MLSTM,
    "slstm": SLSTM,
    "ffm": FFM,
    "shm": SHM,
    "hybrid": Hybrid,
}
Hybrid.memories = MEMORIES

__all__ = [
    "MEMORIES",
    "AbstractMemory",
    "MemoryMap",
    "make_memory",
    "options_among",
    "options_of",
    "scan_steps",
    "select",
]


def options_of(memory: str | Callable[..., Any]) -> dict[str, Any]:
    """A memory's options with their defaults; `inspect.Parameter.empty` where there is none.

    Args:
        memory: one of `MEMORIES`, or a class (or function) of your own with the same arguments.

    Raises:
        UserError: if there is no memory of that name.
    """
    parameters = parameters_of(_find(memory)).values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = (p for p in parameters if p.name not in ("input_size", "key") and p.kind not in variadic)
    return {parameter.name: parameter.default for parameter in own}


def options_among(memory: str | Callable[..., Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps the options that a memory has, for example of sizes that are given for many memories.

    Args:
        memory: as in `options_of`.
        wanted: values by option.

    Raises:
        UserError: if there is no memory of that name.
    """
    known = options_of(memory)
    return {option: value for option, value in wanted.items() if option in known}


def make_memory(
    memory: str | Callable[..., Any], /, *, input_size: int, key: PRNGKeyArray, **options: Any
) -> AbstractMemory:
    """Builds a memory.

    Args:
        memory: one of `MEMORIES`, or a class (or function) of your own, which is called like
            them: `memory(input_size, key=key, **options)`.
        input_size: size of an observation.
        key: random key for the weights.
        **options: the model's options; see its class or `clew models NAME`.

    Raises:
        UserError: for an unknown name or option (the message gives the nearest valid ones), an
            impossible value, or a class that is not a memory or does not take these arguments.
    """
    build = _find(memory)
    name = memory if isinstance(memory, str) else _label(build)
    refuse_other_classes(name, build)
    require_key(key)
    size, given = _number(input_size), {option: _number(v) for option, v in options.items()}
    made = call_own(name, build, size, key=key, **given)
    if not isinstance(made, AbstractMemory):
        raise UserError(f"{name} returned {type(made).__name__}, expected an AbstractMemory")
    return made


def _number(value: Any) -> Any:
    """Turns a NumPy number, such as a size computed from a space, into a Python number."""
    return value.item() if isinstance(value, np.generic) else value


def refuse_other_classes(name: str, build: object) -> None:
    """Raises `UserError` for a class that is not a memory."""
    if isinstance(build, type) and not issubclass(build, AbstractMemory):
        raise UserError(f"{name} is not a memory: expected a class derived from AbstractMemory")


def require_key(key: Any) -> None:
    """Raises `UserError` unless `key` is one random key, new-style or old-style."""
    array = isinstance(key, jax.Array | np.ndarray)
    new = array and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0
    if not new and not (array and key.dtype == np.uint32 and key.ndim == 1):
        raise UserError(f"key must be a random key, jax.random.key(seed), got {one_line(key)}")


def _label(memory: Callable[..., Any]) -> str:
    if isinstance(memory, type | FunctionType):
        return f"{memory.__module__}:{memory.__qualname__}"
    return repr(memory)


def _find(memory: str | Callable[..., Any]) -> Callable[..., Any]:
    if callable(memory):
        return memory
    if not isinstance(memory, str) or memory not in MEMORIES:
        raise unknown_name("memory", memory, MEMORIES)
    return MEMORIES[memory]
