"""Memories as in the code of several studies: LSTM and GRU with double biases or smaller initial
weights, GTrXL with other gates, norms and windows.
"""

from functools import partial
from typing import Unpack

from jaxtyping import PRNGKeyArray

from clew.errors import require_choice
from clew.memory.gru import GRUCell
from clew.memory.kernels import Backend
from clew.memory.lstm import LSTMCell
from clew.memory.parts.cells import CellOptions, CellStack, InitPer, make_cells
from clew.memory.parts.gates import GateName
from clew.memory.parts.layer import LayerOptions, NormPlace
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.stack import AttentionOptions, LayerStack, WindowOptions, window_stack


class PublishedLSTM(CellStack):
    """`clew.memory.lstm.LSTM` with options for published or earlier versions.

    Args:
        forget_bias: as in the LSTM.
        all_biases: whether the recurrent products have biases beside b, which add nothing new, as
            in PyTorch and in results published with it.
        init_per: what is drawn as one orthogonal matrix: the "product" of the four gates side by
            side, whose weights are half as large, or each "gate" separately, as in flax and in
            Pramanik's code.
        backend: how a chunk is computed: "kernel", "xla" or "auto"; see `Backend`.
        options: passed to `make_cells`.

    Raises:
        UserError: for a size below 1, an unknown choice, or a kernel that cannot be built.
    """

    @takes_options_of(make_cells)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        forget_bias: float = 0.0,
        all_biases: bool = False,
        init_per: InitPer = "gate",
        backend: Backend = "auto",
        **options: Unpack[CellOptions],
    ):
        require_choice("init_per", init_per, ("product", "gate"))
        cell = partial(LSTMCell, forget_bias=forget_bias, init_per=init_per, all_biases=all_biases)
        made = make_cells(input_size, key, partial(cell, backend=backend), **options)
        self.set_cells(input_size, *made)


class PublishedGRU(CellStack):
    """`clew.memory.gru.GRU` with options for published or earlier versions.

    Args:
        all_biases: as in `PublishedLSTM`, for the recurrent products of r and z.
        init_per: as in `PublishedLSTM`, for the three gates.
        backend: how a chunk is computed: "kernel", "xla" or "auto"; see `Backend`.
        options: passed to `make_cells`.

    Raises:
        UserError: for a size below 1, an unknown choice, or a kernel that cannot be built.
    """

    @takes_options_of(make_cells)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        all_biases: bool = False,
        init_per: InitPer = "gate",
        backend: Backend = "auto",
        **options: Unpack[CellOptions],
    ):
        require_choice("init_per", init_per, ("product", "gate"))
        cell = partial(GRUCell, init_per=init_per, all_biases=all_biases, backend=backend)
        self.set_cells(input_size, *make_cells(input_size, key, cell, **options))


class PublishedGTrXL(LayerStack):
    """`clew.memory.gtrxl.GTrXL` with options for the differences of two published implementations.

    Args:
        gate: "gru", "residual", or "temporal_gru", which is a recurrent net (see `TemporalGRU`), as
            in Makkink's code.
        norm: as in `GTrXL`; "around" in that code.
        inner_residual: True makes the attention's output norm_0(x + attention(x)) before norm and
            gate as above, as in that code.
        query_norm: False leaves the queries unnormed, as in Pramanik's published code.
        banded: False lets a chunk see all of itself beside the window, as in that code's learner,
            so that learning and acting are different functions.
        options: passed to `window_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.
    """

    @takes_options_of(window_stack, attention_bias=True)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        gate: GateName = "gru",
        norm: NormPlace = "before",
        inner_residual: bool = False,
        query_norm: bool = True,
        banded: bool = True,
        **options: Unpack[WindowOptions],
    ):
        layer: LayerOptions = {"gate": gate, "norm": norm, "inner_residual": inner_residual}
        attention: AttentionOptions = {"query_norm": query_norm, "banded": banded}
        made = window_stack(input_size, key, layer=layer, attention=attention, **options)
        self.set_layers(input_size, *made, embedding_relu=True)
