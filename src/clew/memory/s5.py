"""The simplified state-space layer, S5."""

import math
from typing import ClassVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, PRNGKeyArray

from clew.errors import LARGEST_SIZE, MOST_PARTS, UserError, require_at_least, require_rate
from clew.memory.parts import initial
from clew.memory.parts.blocks import Init, wide
from clew.memory.parts.linear_recurrence import ScanBackend
from clew.memory.parts.mixers import MixerOptions, MixerStack, stacks
from clew.memory.parts.state_space import Activation, StateSpaceMixer, polar, to_complex

SLOWEST = -1e-4
"""The largest real part of a bounded eigenvalue, as in the authors' code."""


class S5Mixer(StateSpaceMixer):
    """The recurrence of an `S5`, see there."""

    real: Float[Array, " state"]
    imag: Float[Array, " state"]
    log_step: Float[Array, " state"]
    bounded: bool = eqx.field(static=True)
    multiplicity: ClassVar[float] = 2.0

    def __init__(
        self,
        size: int,
        *,
        key: PRNGKeyArray,
        init: Init,
        state_size: int | None,
        num_blocks: int,
        dt_min: float,
        dt_max: float,
        bounded: bool,
        activation: Activation,
        backend: ScanBackend,
    ):
        state = _check_sizes(size, state_size, num_blocks)
        require_rate("dt_min", dt_min, positive=True)
        require_rate("dt_max", dt_max, positive=True)
        if dt_min > dt_max:
            raise UserError(f"dt_min must not be above dt_max, got {dt_min!r} and {dt_max!r}")
        keys = jax.random.split(key, 5)
        frequencies, vectors = hippo_normal(state // num_blocks)
        b = _in_blocks(initial.lecun(keys[0], (size, state)), np.conj(vectors))
        c_real, c_imag = (initial.lecun(k, (state, size)).T for k in keys[1:3])
        (rr, ri), (ir, ii) = _in_blocks(c_real, vectors), _in_blocks(c_imag, vectors)
        c = (rr - ii).T, (ri + ir).T
        super().__init__(b, c, key=keys[3], init=init, activation=activation, backend=backend)
        self.real = initial.constant(state // 2, -0.5)
        self.imag = jnp.array(np.tile(frequencies, num_blocks), jnp.float32)
        low, high = math.log(dt_min), math.log(dt_max)
        middle, span = (low + high) / 2, (high - low) / 2
        self.log_step = middle + initial.uniform(keys[4], (state // 2,), span)
        self.bounded = bounded

    def transition(self) -> tuple[Complex[Array, " state"], Complex[Array, " state"]]:
        """exp(Lambda dt), and (exp(Lambda dt) - 1) / Lambda, computed without cancellation."""
        real, imag, step = wide(self.real), wide(self.imag), jnp.exp(wide(self.log_step))
        real = jnp.minimum(real, SLOWEST) if self.bounded else real
        log_radius, angle = real * step, imag * step
        less_one = jnp.expm1(log_radius) * jnp.cos(angle) - 2.0 * jnp.square(jnp.sin(0.5 * angle))
        turned = jnp.exp(log_radius) * jnp.sin(angle)
        scale = to_complex(less_one, turned) / to_complex(real, imag)
        return polar(log_radius, angle), scale


def hippo_normal(size: int) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues -1/2 + i w of the normal part of HiPPO-LegS, one of each conjugate pair.

    The matrix has -1/2 on its diagonal, -sqrt((2n+1) (2k+1)) / 2 below it, and the same with the
    opposite sign above it. It is skew-symmetric except for the diagonal, so w and the vectors are
    those of a Hermitian matrix.

    Args:
        size: of the matrix; even.

    Returns:
        w [size / 2], all positive, and the vectors [size, size / 2].

    Source: Smith et al. (2023), for the initial Lambda, and their code (`make_DPLR_HiPPO`); Gu et
    al. (2022) for the normal part.
    """
    root = np.sqrt(np.arange(size) + 0.5)
    below = np.tril(np.outer(root, root), -1)
    frequencies, vectors = np.linalg.eigh(-1j * (below.T - below))
    return frequencies[size // 2 :], vectors[:, size // 2 :]


def _in_blocks(
    matrix: Float[Array, "n state"], vectors: np.ndarray
) -> tuple[Float[Array, "n half"], Float[Array, "n half"]]:
    """Real and imaginary parts of a matrix times a block-diagonal one with equal complex blocks."""
    size = len(vectors)
    blocks = matrix.reshape(len(matrix), -1, size)
    real, imag = (
        jnp.einsum("nbs,sh->nbh", blocks, jnp.array(part, matrix.dtype)).reshape(len(matrix), -1)
        for part in (np.real(vectors), np.imag(vectors))
    )
    return real, imag


def _check_sizes(size: int, state_size: int | None, num_blocks: int) -> int:
    """The state size before it is halved: as given, or the one that fits in the layer's width."""
    require_at_least("num_blocks", num_blocks, 1, MOST_PARTS)
    pairs = 2 * num_blocks
    if state_size is None:
        return pairs * max(1, size // pairs)
    require_at_least("state_size", state_size, 1, LARGEST_SIZE)
    if state_size % pairs:
        raise UserError(
            f"state_size must be a multiple of 2 num_blocks = {pairs}, got {state_size}"
        )
    return state_size


class S5(MixerStack):
    """S5: one diagonal linear state-space model of all inputs, with learned step sizes.

        dt = exp(s)       lambda = exp(Lambda * dt)
        h_t = lambda * h_{t-1} + (lambda - 1) / Lambda * (B x_t)
        y_t = 2 Re(C h_t) + D * x_t

    in the layers of `mixer_stack`, with `activation` after y. At the start Lambda has the
    eigenvalues of HiPPO's normal matrix in num_blocks equal blocks, B and C are in the basis of its
    eigenvectors, and dt is log-uniform from dt_min to dt_max. One number of every conjugate pair is
    kept: the state is state_size / 2 complex numbers per layer.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        state_size: size of the state with all conjugates, a multiple of 2 num_blocks; the one that
            fits in `hidden_size` if None.
        num_blocks: number of blocks of the initial matrix of Lambda.
        dt_min: the shortest step at the start; a memory lasts about 2 / dt steps.
        dt_max: the longest step at the start.
        bounded: keeps real parts of Lambda at or below -0.0001, so that no state can grow without
            bound; the authors advise it for sequences without end.
        activation: what follows y: "none", "gelu", "half_glu" or "full_glu", see `Activation`.
        backend: how a chunk is computed: "xla" or "associative"; see `ScanBackend`.
        options: passed to `mixer_stack`.

    Raises:
        UserError: for an impossible size or step, or an unknown choice.

    Source: Smith et al. (2023), "Simplified state space layers for sequence modeling", with its
    zero-order hold, and the authors' code (lindermanlab/S5); Lu et al. (2023), "Structured state
    space models for in-context reinforcement learning", for its use in RL: at a start they multiply
    by a flag, whereas here the state is selected. Deviations: B is drawn with variance 1 /
    hidden_size, where the authors' code has 1 / state_size; `bounded` is on here and off in both
    papers' codes, because an eigenvalue that training moves above 0 lets the state grow
    exponentially in an episode without end; and the paper's layers are a norm, this unit and
    `activation`, where here a feed-forward net follows.
    """

    @stacks(S5Mixer)
    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        state_size: int | None = None,
        num_blocks: int = 1,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        bounded: bool = True,
        activation: Activation = "half_glu",
        backend: ScanBackend = "auto",
        **options: Unpack[MixerOptions],
    ): ...
