"""ReLiT and AReLiT as printed in Pramanik's (2023) thesis and as in the authors' code."""

from functools import partial
from typing import Literal, NamedTuple, Unpack, get_args

import numpy as np
from jaxtyping import PRNGKeyArray

from clew.errors import MOST_PARTS, UserError, require_at_least, require_choice
from clew.memory.arelit import ApproximateLinearAttention
from clew.memory.parts.features import GatedOptions, InitPer, QueryPath, gated_stack
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.oscillators import WAVES, Oscillators, Waves, phases
from clew.memory.parts.stack import LayerStack
from clew.memory.relit import Decay, GatedLinearAttention

Frequencies = Literal["half_wave", "full_wave", "odd_wave", "printed", "code"]
Scale = Literal["derived", "printed", "code"]


def printed_waves(r: int) -> Oscillators:
    """omega_k = 2 pi k / r, k = 0..r, which contain every cosine twice (Algorithm 6, line 11).

    With the derived scale delta(m, n) = [m = n mod r] + [m = -n mod r] + 2 / r: at r = 1 the layer
    is an average of gated values, whatever the keys and queries.
    """
    require_at_least("r", r, 1, MOST_PARTS)
    return Oscillators(np.cos(phases(r, np.arange(r + 1))), np.ones(r + 1), 2 / r)


def coded_waves(r: int) -> Oscillators:
    """r evenly spaced values from -pi to pi, as in the authors' published code."""
    require_at_least("r", r, 1, MOST_PARTS)
    # omega_k = pi (2k - (r - 1)) / (r - 1) repeats after 2 (r - 1) steps; r = 1 is omega = -pi.
    multiples = 2 * np.arange(r) - (r - 1) if r > 1 else np.array([-1])
    table = np.cos(phases(max(2, 2 * (r - 1)), multiples))
    return Oscillators(table, np.ones(r), 2 / max(1, r - 1))


_WAVES: dict[str, Waves] = {**WAVES, "printed": printed_waves, "code": coded_waves}


class ScaledWaves(NamedTuple):
    """Any of the frequencies with any of the scales, as a function of r.

    Scales: "derived", that of Eq. 4.6, 2 over the number of intervals; "printed" 1 / (2 r)
    (Eq. 4.22); "code" 1 / (2 vectors).
    """

    frequencies: Frequencies
    scale: Scale = "derived"

    def __call__(self, r: int) -> Oscillators:
        """The waves.

        Raises:
            UserError: for an unknown choice, or an impossible r.
        """
        require_choice("frequencies", self.frequencies, get_args(Frequencies))
        require_choice("scale", self.scale, get_args(Scale))
        waves = _WAVES[self.frequencies](r)
        vectors = len(waves.weights)
        scales = {"derived": waves.scale, "printed": 1 / (2 * r), "code": 1 / (2 * vectors)}
        return waves._replace(scale=scales[self.scale])


class PublishedAReLiT(LayerStack):
    """`clew.memory.arelit.AReLiT` with the choices of the thesis and of its code.

    Args:
        r: number of intervals of the approximation; r + 1 vectors (`code`: r vectors).
        frequencies: "half_wave", "full_wave", "odd_wave", "printed" or "code"; see `coded_waves`.
        scale: "derived", "printed" or "code"; see `ScaledWaves`.
        tick: "episode" counts from 1 in every episode; "carried" is never reset and starts one step
            later, as in the code; see `ApproximateLinearAttention`.
        init_per: which products for keys, queries, values and gates start as one orthogonal matrix:
            the whole "product", as in the code, each "role" (K, Q, V, beta, gamma, p1, p2, p3), or
            each role of each "head". Smaller matrices have larger weights.
        options: passed to `gated_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.
    """

    @takes_options_of(gated_stack, chrono=256)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        r: int = 3,
        frequencies: Frequencies = "half_wave",
        scale: Scale = "derived",
        tick: Literal["episode", "carried"] = "episode",
        init_per: InitPer = "product",
        **options: Unpack[GatedOptions],
    ):
        require_choice("tick", tick, ("episode", "carried"))
        waves = ScaledWaves(frequencies, scale)
        waves(r)
        carried = tick == "carried"
        attention = partial(ApproximateLinearAttention, waves=waves, r=r, carried_time=carried)
        made = gated_stack(input_size, key, attention, init_per=init_per, **options)
        self.set_layers(input_size, *made, embedding_relu=True)


class PublishedReLiT(LayerStack):
    """`clew.memory.relit.ReLiT` with the choices of the authors' code that differ from the thesis.

    Args:
        decay: "separate", (1 - beta) (x) (1 - gamma), or "joint", 1 - beta (x) gamma.
        query: "single", or "double" for one more product on the query's path.
        embedding_relu: whether the embedding ends in a relu.
        init_per: as in `PublishedAReLiT`; the code has "head".
        options: passed to `gated_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.
    """

    @takes_options_of(gated_stack)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        decay: Decay = "separate",
        query: QueryPath = "single",
        embedding_relu: bool = True,
        init_per: InitPer = "head",
        **options: Unpack[GatedOptions],
    ):
        require_choice("decay", decay, ("separate", "joint"))
        if options.get("backend") == "chunkwise" and decay == "joint":
            raise UserError(
                "backend='chunkwise' needs decay='separate': products of 1 - beta (x) gamma over "
                "time are not outer products; 'associative' is the parallel form for decay='joint'"
            )
        attention = partial(GatedLinearAttention, decay_of=decay)
        made = gated_stack(input_size, key, attention, init_per=init_per, query=query, **options)
        self.set_layers(input_size, *made, embedding_relu=embedding_relu)
