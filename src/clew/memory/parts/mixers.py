"""The usual backbone of a modern sequence model, around any mixer of time steps.

A mixer is made from its width, key=..., init=... and its options: a norm, products of its input, a
recurrence, and a product of the result. A model is one mixer and its options.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

from jaxtyping import PRNGKeyArray

from clew.memory.parts.blocks import Init, Linear, with_drawn_bias
from clew.memory.parts.gates import GateName
from clew.memory.parts.layer import Layer, Mixer
from clew.memory.parts.options import takes_options_of
from clew.memory.parts.stack import LayerStack, embedded_layers

M = TypeVar("M", bound=Mixer)
T = TypeVar("T", bound=Callable[..., None])


class MixerOptions(TypedDict, total=False):
    """The options of every model of mixers; `mixer_stack` describes them."""

    hidden_size: int
    num_layers: int
    ffn_size: int | None
    gate: GateName
    residual_weight: bool
    init: Init


def mixer_stack(
    input_size: int,
    key: PRNGKeyArray,
    mixer: Callable[..., M],
    *,
    hidden_size: int = 128,
    num_layers: int = 2,
    ffn_size: int | None = None,
    gate: GateName = "residual",
    residual_weight: bool = False,
    init: Init = "orthogonal",
    **options: Any,
) -> tuple[Linear, tuple[Layer[M], ...]]:
    """An embedding, and pre-norm layers around mixers.

        e = x W + b;   layer: y = x + mixer(norm(x));   out = y + mlp(norm(y))

    b is drawn, see `with_drawn_bias`: otherwise zero observations would reach the norms as zeros.

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        mixer: makes a mixer from its width, key=..., init=... and its options.
        hidden_size: width of the residual stream, and of the output.
        num_layers: number of layers.
        ffn_size: hidden width of the feed-forward net; `hidden_size` if None.
        gate: how a sublayer joins the stream: "residual", or "gru" as in GTrXL.
        residual_weight: multiplies what both sublayers add by one learned number per layer, which
            starts at 0, as in ReZero: at the start the output is e.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".
        **options: the mixer's options.

    Raises:
        UserError: for an impossible size or an unknown choice.
    """

    def one(mixer_key: PRNGKeyArray, _: PRNGKeyArray) -> M:
        return mixer(hidden_size, key=mixer_key, init=init, **options)

    sizes = (input_size, hidden_size, num_layers, ffn_size)
    embedding, layers = embedded_layers(
        one, *sizes, key=key, init=init, gate=gate, norm="before", residual_weight=residual_weight
    )
    return with_drawn_bias(embedding, key=key), layers


class MixerStack(LayerStack):
    """A memory made of mixers, which its constructor names with `stacks`."""

    def stack(
        self, input_size: int, key: PRNGKeyArray, mixer: Callable[..., Mixer], **options: Any
    ) -> None:
        """Sets every field from `mixer_stack`; for `stacks`."""
        self.set_layers(input_size, *mixer_stack(input_size, key, mixer, **options))


def stacks(mixer: Callable[..., Mixer]) -> Callable[[T], T]:
    """Decorates the constructor of a `MixerStack` with this mixer; it needs no body.

    The options that it lists go to the mixer, and `**options` to `mixer_stack`.
    """

    def decorate(init: T) -> T:
        own = inspect.signature(init)

        @functools.wraps(init)
        def stack(*args: Any, **given: Any) -> None:
            init(*args, **given)  # Python says what is missing
            bound = own.bind(*args, **given)
            bound.apply_defaults()
            MixerStack.stack(*bound.args, mixer=mixer, **bound.kwargs)

        return takes_options_of(mixer_stack)(stack)  # pyright: ignore[reportReturnType]

    return decorate
