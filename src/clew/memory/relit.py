"""ReLiT, the recurrent linear transformer."""

from typing import ClassVar, Literal, NamedTuple, Unpack

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.memory.kernels import RecurrenceBackend, choose_form
from clew.memory.kernels.linear_recurrence import ReLiTConstants, ReLiTInputs, relit_recurrence
from clew.memory.parts import chunkwise
from clew.memory.parts.blocks import LayerNorm, Linear
from clew.memory.parts.features import (
    Features,
    GatedFeatures,
    GatedOptions,
    gate_maps,
    gated_stack,
    outer,
)
from clew.memory.parts.layer import Mixer
from clew.memory.parts.linear_recurrence import Chunk, advance, advance_chunk
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.products import exact_einsum
from clew.memory.parts.stack import LayerStack

Decay = Literal["separate", "joint"]


class ReLiTState(NamedTuple):
    """One layer's state: the sum of outer products C, and the sum of keys s."""

    matrix: Float[Array, "heads head eta head"]
    normaliser: Float[Array, "heads eta head"]


class GatedLinearAttention(Mixer):
    """Linear attention with learned feature maps and gates on keys and on values.

        C_t = D_t * C_{t-1} + (beta_t * v_t) (x) (gamma_t * k_t)      (Eq. 3.5)
        D_t = (1 - beta_t) (x) (1 - gamma_t)
        s_t = (1 - gamma_t) * s_{t-1} + gamma_t * k_t
        a_t = C_t q_t / (s_t . q_t + epsilon)

    per head; the heads are then concatenated and go through one product. With `decay="joint"`, as
    in the authors' published code, $D_t = 1 - beta_t (x) gamma_t$.

    Shapes: x [size] to y [size]. Source: Pramanik (2023), Algorithm 5. Deviation: `epsilon`.
    """

    norm: LayerNorm
    features: GatedFeatures
    output: Linear
    epsilon: float = eqx.field(static=True)
    decay_of: Decay = eqx.field(static=True, default="separate")
    backend: RecurrenceBackend = eqx.field(static=True, default="auto")
    states_at_once: ClassVar[int] = 64

    def init_state(self) -> ReLiTState:
        f = self.features
        keys, dtype = (f.eta, f.head_size), f.inputs.weight.dtype
        return ReLiTState(
            jnp.zeros((f.num_heads, f.head_size, *keys), dtype),
            jnp.zeros((f.num_heads, *keys), dtype),
        )

    def decay(self, f: Features) -> tuple[ReLiTState, ReLiTState]:
        """The factors by which a step keeps C and s, and what it adds; C is [heads, v, eta, k]."""
        gamma = outer(f.gamma_map, f.gamma)
        gated_k = gamma * outer(f.key_map, f.key)
        beta = f.beta[:, :, None, None]
        if self.decay_of == "separate":
            d = (1.0 - beta) * (1.0 - gamma)[:, None]
        else:
            d = 1.0 - beta * gamma[:, None]
        gated_v = (f.beta * f.value)[:, :, None, None]
        return ReLiTState(d, 1.0 - gamma), ReLiTState(gated_v * gated_k[:, None], gated_k)

    def read(self, state: ReLiTState, f: Features) -> Float[Array, "heads head"]:
        """a_t of all heads."""
        q = outer(f.query_map, f.query)
        above = exact_einsum("hvam,ham->hv", state.matrix, q)
        below = jnp.sum(state.normaliser * q, axis=(1, 2)) + self.epsilon
        return above / below[:, None]

    def step(
        self, state: ReLiTState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[ReLiTState, Float[Array, " n"]]:
        state, a = advance(self, state, self.features(self.norm(x)), start)
        return state, self.output(a.reshape(-1))

    def unroll(
        self, state: ReLiTState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[ReLiTState, Float[Array, "time n"]]:
        """A chunk: products all at once, then the recurrence, which stores few of its states."""
        # The joint decay of a pair of steps is not an outer product, so matrix products cannot
        # compute it.
        parallel = "chunkwise" if self.decay_of == "separate" else "associative"
        form = choose_form(self.backend, self.features, xs, state, parallel=parallel)
        if form == "kernel":
            inputs = ReLiTInputs(*self.features.products(self.norm(xs)), starts, *state)
            constants = ReLiTConstants(self.decay_of == "joint", self.epsilon)
            a, *after = relit_recurrence(constants, inputs)
            state = ReLiTState(*after)
        else:
            state, a = advance_chunk(self, form, state, self.features(self.norm(xs)), starts)
        return state, self.output(a.reshape(len(xs), -1))

    def read_chunks(self, state: ReLiTState, f: Features, starts: Bool[Array, " time"]) -> Chunk:
        """Several steps by matrix products, with separate decay."""
        last, a = chunkwise.read_outer_products(
            (state.matrix, state.normaliser), f, starts, self.epsilon
        )
        return ReLiTState(*last), a

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """The factors that are kept at every step."""
        return gate_maps(self.features, self.norm(xs), joint=self.decay_of == "joint")


class ReLiT(LayerStack):
    """The recurrent linear transformer: gated linear attention inside the GTrXL layer.

        e = relu(x W + b)
        y = gate_1(x, relu(attention(norm(x))))        in each layer
        out = gate_2(y, relu(mlp(norm(y))))

    with `GatedLinearAttention` and the GRU gate. The cost of a step and the state size do not grow
    with the length of an episode: a layer holds eta heads head_size (head_size + 1) numbers.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        options: passed to `gated_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Pramanik (2023), Algorithm 5 and section 3.3; Parisotto et al. (2020) for the layer;
    Tallec and Ollivier (2018) for `chrono`.

    Deviations: the products have biases. The relu before each gate follows the published code, and
    so does the initialisation: each head's products for keys, queries, values and gates start as
    separate orthogonal matrices, which with ten seeds has the best mean on three tasks, by a
    difference too small to detect (`results/initial-weights`).
    `clew.lab.studies.tmaze.models.PublishedReLiT` has that code's other departures from the thesis.
    """

    @takes_options_of(gated_stack)
    def __init__(self, input_size: int, *, key: PRNGKeyArray, **options: Unpack[GatedOptions]):
        made = gated_stack(input_size, key, GatedLinearAttention, init_per="head", **options)
        self.set_layers(input_size, *made, embedding_relu=True)
