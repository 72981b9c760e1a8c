"""Layers of several kinds in one stack."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import jax
from jaxtyping import PRNGKeyArray

from clew.errors import DEEPEST, UserError, check_call, one_line, require_at_least, unknown_name
from clew.memory.parts.blocks import Init, Linear, check_sizes, with_drawn_bias
from clew.memory.parts.layer import Layer
from clew.memory.parts.stack import LayerStack
from clew.memory.transformer_xl import TransformerXL

ATTENTION = "attention"
"""The layer that belongs to no memory: pre-norm attention over a window."""


class Hybrid(LayerStack):
    """A stack of layers of other memories, chosen by name.

        e = x W + b
        out = layer_L(... layer_2(layer_1(e)))

    A layer is the one of the memory with this name, built with one layer and the same width: its
    mixer or attention, its gates and its feed-forward net. "attention" is Transformer-XL's with the
    norm before it, as is usual beside linear recurrences. The state holds the states of all layers.

    Shapes: x [input_size] to y [hidden_size].

    Args:
        input_size: size of an observation.
        key: random key for the weights.
        layers: the kinds from first to last: "attention" or memories made of layers.
        layer_options: by kind, the options that differ from that memory's defaults, for example
            {"attention": {"window": 64}}.
        hidden_size: width of the residual stream, and of the output.
        init: "orthogonal" (gain sqrt 2), "lecun" or "uniform".

    Raises:
        UserError: for an unknown kind, one without layers, options for a kind that is not in
            `layers`, or an impossible size.

    Source: De et al. (2024), Griffin, section 2; Yang et al. (2024), Gated Delta Networks, section
    3.4, for alternating recurrences and attention. Deviation: any order of any kinds.
    """

    memories: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    """The memories whose layers can be used: `clew.memory.MEMORIES`, which registers itself."""

    def __init__(
        self,
        input_size: int,
        *,
        key: PRNGKeyArray,
        layers: Sequence[str] = ("gated_delta_net", ATTENTION),
        layer_options: Mapping[str, Mapping[str, Any]] | None = None,
        hidden_size: int = 128,
        init: Init = "orthogonal",
    ):
        check_sizes(input_size, hidden_size, 1)
        named = isinstance(layers, list | tuple) and all(isinstance(kind, str) for kind in layers)
        if not named or not layers:
            raise UserError(
                f'layers must be a list of names, ["{ATTENTION}", ...], got {one_line(layers)}'
            )
        require_at_least("the number of layers", len(layers), 1, DEEPEST)
        given = {} if layer_options is None else layer_options
        if not isinstance(given, Mapping) or not all(
            isinstance(o, Mapping) for o in given.values()
        ):
            raise UserError(f"layer_options must be options by kind, got {one_line(layer_options)}")
        for kind in given:
            if kind not in layers:
                raise unknown_name("kind of layer in layer_options", kind, layers)
        embedding_key, *keys = jax.random.split(key, 1 + len(layers))
        embedding = Linear(input_size, hidden_size, key=embedding_key, init=init)
        shared = {"hidden_size": hidden_size, "init": init}
        made = tuple(
            self._layer(kind, hidden_size, k, shared | dict(given.get(kind, {})))
            for kind, k in zip(layers, keys, strict=True)
        )
        self.set_layers(input_size, with_drawn_bias(embedding, key=embedding_key), made)

    @classmethod
    def kinds(cls) -> dict[str, Callable[..., Any]]:
        """The memories whose layers may be used, by the names in `layers`."""
        others = {name: made for name, made in cls.memories.items() if made is not cls}
        return {ATTENTION: partial(TransformerXL, norm="before"), **others}

    def _layer(
        self, kind: str, size: int, key: PRNGKeyArray, options: dict[str, Any]
    ) -> Layer[Any]:
        """The only layer of a one-layer memory."""
        known = self.kinds()
        if kind not in known:
            raise unknown_name("kind of layer", kind, known)
        own = {"num_layers", "input_size", "key", "embedding"}
        if options["hidden_size"] != size or own & set(options):
            raise UserError(
                f"{kind} in layer_options: width, number, input and key are set by the hybrid"
            )
        check_call(kind, known[kind], size, key=key, num_layers=1, **options)
        made = known[kind](size, key=key, num_layers=1, **options)
        if not isinstance(made, LayerStack):
            classes = {name: of for name, of in known.items() if isinstance(of, type)}
            stacks = [name for name, of in classes.items() if issubclass(of, LayerStack)]
            raise UserError(
                f"{kind} is not made of layers that a hybrid can take; those are "
                f"{', '.join([ATTENTION, *stacks])}"
            )
        return made.layers[0]
