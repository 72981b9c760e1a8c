"""The minimal gated recurrent unit."""

from functools import partial
from typing import Literal, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, require_at_least, require_choice
from clew.memory.parts.blocks import Init, LayerNorm, Linear, begin_open
from clew.memory.parts.diagonal import DiagonalMixer
from clew.memory.parts.linear_recurrence import ScanBackend
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.mixers import MixerOptions, mixer_stack
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.stack import LayerStack

Candidate = Literal["linear", "positive"]


class MinGRUMixer(DiagonalMixer):
    """The recurrence of a `MinGRU`, between a product that widens and one that narrows.

        z_t = sigmoid(x_t W_z + b_z)       h~_t = x_t W_h + b_h
        h_t = (1 - z_t) * h_{t-1} + z_t * h~_t

    `inputs` holds [z | h~].
    """

    norm: LayerNorm
    inputs: Linear
    output: Linear
    candidate: Candidate = eqx.field(static=True)
    backend: ScanBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        inner_size: int | None,
        candidate: Candidate,
        chrono: int,
        backend: ScanBackend,
    ):
        inner = size if inner_size is None else inner_size
        require_at_least("inner_size", inner, 1, LARGEST_SIZE)
        require_choice("candidate", candidate, ("linear", "positive"))
        input_key, output_key = jax.random.split(key)
        inputs = Linear(size, 2 * inner, key=input_key, init=init, blocks=2)
        self.norm = LayerNorm(size)
        self.inputs = begin_open(inputs, slice(0, inner), chrono, key=key)
        self.output = Linear(inner, size, key=output_key, init=init)
        self.candidate = candidate
        self.backend = backend

    def init_state(self) -> Float[Array, " inner"]:
        return jnp.zeros(self.output.weight.shape[0], self.output.weight.dtype)

    def terms(self, x: Float[Array, "*lead n"]) -> tuple[Array, Array]:
        """1 - z and z h~."""
        z, h = jnp.split(self.inputs(x), 2, axis=-1)
        if self.candidate == "positive":
            h = jnp.where(h >= 0.0, h + 0.5, jax.nn.sigmoid(h))
        return jax.nn.sigmoid(-z), jax.nn.sigmoid(z) * h

    def read(
        self, state: Float[Array, "*lead inner"], x: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        """The product that narrows."""
        return self.output(state)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """What is kept at every step."""
        return {"1 - z": MemoryMap(self.terms(self.norm(xs))[0], "keep")}


class MinGRU(LayerStack):
    """The minGRU: a GRU whose gate does not read the state, so that it is parallel in time.

        z_t = sigmoid(x_t W_z + b_z)       h~_t = x_t W_h + b_h
        h_t = (1 - z_t) * h_{t-1} + z_t * h~_t

    in the layers of `mixer_stack`. The state is inner_size numbers a layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        inner_size: numbers in h; `hidden_size` if None.
        candidate: "linear", or "positive" for g(h~) in its place, with g(a) = a + 1/2 where a >= 0
            and sigmoid(a) elsewhere, as the paper has where it computes with logarithms.
        chrono: steps that the longest memories last at the start, see `initial.lasting`; with 0
            the biases of z start as all others.
        backend: what computes a chunk: "xla" or "associative"; see `ScanBackend`.
        options: those of `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Feng et al. (2024), "Were RNNs all we needed?", section 3.1 and appendix B. Deviation:
    no logarithms are taken for "positive": the scan divides by nothing and needs none. The paper's
    experiments have a short convolution in some of the layers, which is not here.
    """

    @takes_options_of(mixer_stack)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        inner_size: int | None = None,
        candidate: Candidate = "linear",
        chrono: int = 0,
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ):
        mixer = partial(
            MinGRUMixer,
            inner_size=inner_size,
            candidate=candidate,
            chrono=chrono,
            backend=backend,
        )
        self.embedding, self.layers, self.output_size = mixer_stack(
            input_size, key, mixer, **options
        )
        self.embedding_relu = False
        self.input_size = input_size
