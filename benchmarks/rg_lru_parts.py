"""RG-LRU with parts removed, and minGRU with those parts added, for `benchmarks.steps_back`."""

from typing import Any, Literal, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from clew.memory.min_gru import MinGRUMixer
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, Linear, as_precise
from clew.memory.parts.linear_recurrence import ScanBackend, states_of
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.rg_lru import GriffinMixer, GriffinState

Scale = Literal["root", "rest", "one"]
"""The factor of an input: sqrt(1 - a^2) as in RG-LRU, 1 - a as in minGRU, or 1."""


class PartsMixer(GriffinMixer):
    """The recurrence of an `RGLRUParts`; weights of removed parts are drawn and not read."""

    output_gate: bool = eqx.field(static=True)
    input_gate: bool = eqx.field(static=True)
    scale: Scale = eqx.field(static=True)

    def __init__(
        self, size: int, *, output_gate: bool, input_gate: bool, scale: Scale, **options: Any
    ):
        super().__init__(size, conv=0, num_blocks=1, chrono=0, **options)
        self.output_gate = output_gate
        self.input_gate = input_gate
        self.scale = scale

    def step(
        self, state: GriffinState, x: Float[Array, " n"], start: Bool[Array, ""]
    ) -> tuple[GriffinState, Float[Array, " n"]]:
        state, ys = self.unroll(state, x[None], start[None])
        return state, ys[0]

    def unroll(
        self, state: GriffinState, xs: Float[Array, "time n"], starts: Bool[Array, " time"]
    ) -> tuple[GriffinState, Float[Array, "time n"]]:
        u, v = self._branches(self.norm(xs))
        terms, dtype = self._terms(u, state.hidden.dtype)
        hidden = states_of(*terms, state.hidden, starts, self.backend)
        read = hidden.astype(dtype)
        read = read * jax.nn.gelu(v) if self.output_gate else read
        return GriffinState(hidden[-1], state.convolved), self.output(read)

    def _rates(self, u: Float[Array, "*lead inner"]) -> tuple[Array, Array]:
        log_keep, opened = super()._rates(u)
        return log_keep, opened if self.input_gate else jnp.ones_like(opened)

    def _terms(
        self, u: Float[Array, "*lead inner"], dtype: jnp.dtype
    ) -> tuple[tuple[Array, Array], jnp.dtype]:
        if self.scale == "root":
            return super()._terms(u, dtype)
        (u, log_keep, opened), of_outputs = as_precise(dtype, u.dtype, (u, *self._rates(u)))
        scale = -jnp.expm1(log_keep) if self.scale == "rest" else 1.0
        return (jnp.exp(log_keep), scale * opened * u), of_outputs


class RGLRUParts(MixerStack):
    """RG-LRU without its convolution, and without other parts.

    With all three it is `RGLRU` with conv=0, from the same first weights.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        output_gate: multiply h by v, the gelu of a product of the observation.
        input_gate: multiply u by i, else by 1.
        scale: the other factor of u, see `Scale`.
        inner_size: as in `RGLRU`.
        r_min: as in `RGLRU`.
        r_max: as in `RGLRU`.
        backend: as in `RGLRU`.
        options: those of `mixer_stack`.
    """

    @stacks(PartsMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        output_gate: bool = True,
        input_gate: bool = True,
        scale: Scale = "root",
        inner_size: int | None = None,
        r_min: float = 0.9,
        r_max: float = 0.999,
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...


class GatedMinGRUMixer(MinGRUMixer):
    """The recurrence of a `MinGRUParts`."""

    reader: Linear | None
    root: bool = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        output_gate: bool,
        root: bool,
        chrono: int,
        backend: ScanBackend,
    ):
        super().__init__(
            size,
            key=key,
            init=init,
            inner_size=None,
            candidate="linear",
            chrono=chrono,
            backend=backend,
        )
        reader = Linear(size, size, key=initial.beside(key), init=init)
        self.reader = reader if output_gate else None
        self.root = root

    def factors(self, *gates: Float[Array, "*lead inner"]) -> tuple[Array, Array]:
        keep, write = super().factors(*gates)
        return keep, jnp.sqrt(write * (1.0 + keep)) if self.root else write

    def read(
        self, state: Float[Array, "*lead inner"], x: Float[Array, "*lead n"]
    ) -> Float[Array, "*lead n"]:
        if self.reader is None:
            return super().read(state, x)
        return self.output(state * jax.nn.gelu(self.reader(x)))


class MinGRUParts(MixerStack):
    """minGRU with parts of RG-LRU; with neither it is `MinGRU`, from the same first weights.

    Args:
        input_size: numbers in one observation.
        key: random key for the weights.
        output_gate: multiply h by the gelu of a product of the observation.
        root: multiply the candidate by sqrt(1 - (1 - z)^2) instead of z.
        chrono: as in `MinGRU`.
        backend: as in `MinGRU`.
        options: those of `mixer_stack`.
    """

    @stacks(GatedMinGRUMixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        output_gate: bool = False,
        root: bool = False,
        chrono: int = 0,
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
