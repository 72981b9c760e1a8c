"""RWKV-7."""

import math
from typing import NamedTuple, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, require_at_least
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, LayerNorm, Linear, as_precise, check_heads, unit
from clew.memory.parts.convolution import TokenShift
from clew.memory.parts.layer import Mixer
from clew.memory.parts.maps import MemoryMap
from clew.memory.parts.matrix_mixer import in_heads
from clew.memory.parts.matrix_recurrence import (
    Erase,
    Matrix,
    MatrixBackend,
    MatrixInputs,
    advance,
    advance_chunk,
    choose_matrix_form,
)
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.repeated import like

FASTEST = math.exp(-0.5)
"""-log w where a key decays fastest, e^{-1/2}: w is above 0.545."""


Shifted = tuple[Float[Array, "*lead n"], ...]
"""The inputs of r, k, v, d, a and g."""


class RWKV7State(NamedTuple):
    """One layer's state: C of every head, and the last input, for the token shift of the next."""

    heads: Matrix
    last: Float[Array, "one n"]


class LowRank(eqx.Module):
    """f(x A) B + c, a net with a narrow hidden layer."""

    narrow: Linear
    wide: Linear

    def __init__(self, size: int, rank: int, wide: int, *, key: PRNGKeyArray, init: Init):
        keys = jax.random.split(key)
        self.narrow = Linear(size, rank, key=keys[0], init=init, bias=False)
        self.wide = Linear(rank, wide, key=keys[1], init=init)


class RWKV7Mixer(Mixer):
    """Time mixing of an `RWKV7`, see there; there is a shifted input for r, k, v, d, a and g
    each."""

    norm: LayerNorm
    shift: TokenShift
    receptance: Linear
    key: Linear
    value: Linear
    decay: LowRank
    rate: LowRank
    gate: tuple[Linear, Linear]
    removal: Float[Array, " wide"]
    replacement: Float[Array, " wide"]
    bonus: Float[Array, "heads head"]
    output_norm: LayerNorm
    output: Linear
    backend: MatrixBackend = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        num_heads: int,
        head_size: int,
        rank: int,
        backend: MatrixBackend,
    ):
        check_heads(num_heads, head_size)
        require_at_least("rank", rank, 1, LARGEST_SIZE)
        choose_matrix_form(backend)
        keys, wide = jax.random.split(key, 8), num_heads * head_size
        products = [Linear(size, wide, key=k, init=init, bias=False) for k in keys[:3]]
        self.norm = LayerNorm(size)
        self.shift = TokenShift(_initial_shares(size))
        self.receptance, self.key, self.value = products
        place, zigzag = np.arange(wide) / max(wide - 1, 1) - 0.5, _zigzag(num_heads, head_size)
        decay, rate = (LowRank(size, rank, wide, key=k, init=init) for k in keys[3:5])
        self.decay = _begin(decay, 6.0 * place - 2.5 + 2.5 * zigzag)
        self.rate = _begin(rate, 0.4 * place - 0.19 + 0.3 * zigzag)
        self.gate = (
            Linear(size, 2 * rank, key=keys[5], init=init, bias=False),
            Linear(2 * rank, wide, key=keys[6], init=init, bias=False),
        )
        self.removal = jnp.array(0.71 - 0.1 * place, jnp.float32)
        self.replacement = initial.constant(wide, 1.02)
        self.bonus = initial.constant((num_heads, head_size), -0.04)
        self.output_norm = LayerNorm(head_size, epsilon=64e-5)  # the authors'
        self.output = Linear(wide, size, key=keys[7], init=init, bias=False)
        self.backend = backend

    def init_state(self) -> RWKV7State:
        """Zeros, the matrices of single precision at least."""
        heads, head = self.bonus.shape
        dtype = jnp.promote_types(self.bonus.dtype, jnp.float32)
        return RWKV7State(jnp.zeros((heads, head, head), dtype), self.shift.init_state())

    def step(
        self, state: RWKV7State, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[RWKV7State, Float[Array, " n"]]:
        last, shifted = self.shift.step(state.last, self.norm(x), start)
        terms = self._terms(shifted)
        read, dtype = as_precise(state.heads.dtype, terms.value.dtype, terms)
        heads, y = advance(state.heads, read, start)
        return RWKV7State(heads, last), self._finish(y.astype(dtype), terms, shifted)

    def unroll(
        self, state: RWKV7State, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[RWKV7State, Float[Array, "time n"]]:
        """A chunk: shifts and all products at once, then the recurrence."""
        last, shifted = self.shift.unroll(state.last, self.norm(xs), starts)
        terms = self._terms(shifted)
        read, dtype = as_precise(state.heads.dtype, terms.value.dtype, terms)
        heads, ys = advance_chunk(self.backend, state.heads, read, starts)
        return RWKV7State(heads, last), self._finish(ys.astype(dtype), terms, shifted)

    def maps(self, xs: Float[Array, "time n"]) -> dict[str, MemoryMap]:
        """w and a of every key and step."""
        starts = jnp.zeros(len(xs), bool)
        _, shifted = self.shift.unroll(self.shift.init_state(), self.norm(xs), starts)
        log_keep, rate = self._gates(shifted)
        return {"w": MemoryMap(jnp.exp(log_keep), "keep"), "a": MemoryMap(rate, "gate")}

    def _gates(self, shifted: Shifted) -> tuple[Array, Array]:
        """log w, and a."""
        d = self.decay.wide(jnp.tanh(self.decay.narrow(shifted[3])))
        a = self.rate.wide(self.rate.narrow(shifted[4]))
        return -FASTEST * jax.nn.sigmoid(d), jax.nn.sigmoid(a)

    def _terms(self, shifted: Shifted) -> MatrixInputs:
        """r, k~, v, log w, and the erased key, for every head."""
        read = (self.receptance, self.key, self.value)
        r, k, v = (product(shifted[i]) for i, product in enumerate(read))
        log_keep, rate = self._gates(shifted)
        removed = k * like(self.removal, k)
        k = k * (1.0 + (rate - 1.0) * like(self.replacement, k))
        r, k, v, log_keep, rate, removed = (
            in_heads(x, len(self.bonus)) for x in (r, k, v, log_keep, rate, removed)
        )
        removed = unit(removed, 1e-12)
        return MatrixInputs(r, k, v, log_keep, erase=Erase(removed, rate * removed))

    def _finish(
        self,
        y: Float[Array, "*lead heads head"],
        terms: MatrixInputs,
        shifted: Shifted,
    ) -> Float[Array, "*lead n"]:
        """The norm, the bonus, the gate and the last product."""
        weighed = jnp.broadcast_to(self.bonus, y.shape) * terms.key
        score = jnp.sum(terms.query * weighed, axis=-1, keepdims=True)
        p = (self.output_norm(y) + score * terms.value).reshape(*y.shape[:-2], -1)
        narrow, wide = self.gate
        return self.output(wide(jax.nn.sigmoid(narrow(shifted[5]))) * p)


def _begin(net: LowRank, bias: np.ndarray) -> LowRank:
    """Sets the net's initial output for any input: the first matrix is 0."""
    narrow, offset = jnp.zeros_like(net.narrow.weight), jnp.array(bias, jnp.float32)
    return eqx.tree_at(lambda made: (made.narrow.weight, made.wide.bias), net, (narrow, offset))


def _zigzag(num_heads: int, head_size: int) -> np.ndarray:
    """Values from -1 to 1 within each head, changing slowly in the middle."""
    line = np.linspace(-1.0, 1.0, head_size) if head_size > 1 else np.zeros(1)
    return np.tile(line * np.abs(line), num_heads)


def _initial_shares(size: int) -> Float[np.ndarray, "six n"]:
    """mu of r, k, v, d, a and g: channels from only the last input to only the current one."""
    powers = np.array([0.2, 0.7, 0.7, 0.9, 0.9, 0.2])
    return 1.0 - (np.arange(size) / size) ** powers[:, None]


class RWKV7(MixerStack):
    """RWKV-7: a delta rule with a decay and a rate for every key, on inputs shifted in time.

        x^c_t = x_t + mu_c * (x_{t-1} - x_t)            for c = r, k, v, d, a, g
        r, k, v = x^r W_r, x^k W_k, x^v W_v
        w_t = exp(-e^{-1/2} sigmoid(tanh(x^d A_d) B_d + b_d))
        a_t = sigmoid(x^a A_a B_a + b_a)
        k~ = k * (1 + alpha * (a - 1))                  e = k * xi, of length 1 per head
        C_t = C_{t-1} (diag(w_t) - e_t (a_t * e_t)') + v_t k~_t'
        p_t = norm(C_t r_t) + (r_t . (rho * k~_t)) v_t
        y_t = (p_t * (sigmoid(x^g A_g) B_g)) W_o

    per head, in the layers of `mixer_stack`. The content of C at e is removed, from every key by
    its share a, and v is added at k~: the removed and the written key may differ. The state of a
    layer is heads head_size^2 numbers, and the last input, hidden_size.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        num_heads: number of heads in a layer.
        head_size: width of a key, a query and a value.
        rank: width between A and B of w and a; for the gate it is twice as wide.
        backend: how a chunk is computed: "kernel", "chunkwise", "xla" or "auto"; see
            `MatrixBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or an unknown choice.

    Source: Peng et al. (2025), "RWKV-7 Goose with expressive dynamic state evolution", section 4.1,
    Eq. 3-7, 11-17 and 20-22; mu, xi, alpha, rho, the biases and A_d = A_a = 0 start as in the first
    layer of the authors' code, so that at the start a key lasts from 2 steps to 5,000. Deviations:
    v is not mixed with that of the first layer (Eq. 8-10), since a layer here reads only its input;
    one scale of the norm serves all heads; the feed-forward net is the library's, whose input is
    not shifted; other weights start orthogonal.
    """

    @stacks(RWKV7Mixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        num_heads: int = 4,
        head_size: int = 32,
        rank: int = 32,
        backend: MatrixBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
