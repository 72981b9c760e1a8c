"""Layers of several kinds: the oracles of the kinds, stacked."""

from functools import partial
from typing import Any

from oracles.gated_delta_net import GatedDelta
from oracles.layers import run_mixers
from oracles.min_gru import MinGRU
from oracles.parts import Attention
from oracles.window import WindowedAttention

KINDS = {"MinGRUMixer": MinGRU, "GatedDeltaMixer": GatedDelta}


def oracle(weights: Any) -> Attention:
    """The oracle of one layer; a window owns its position biases."""
    kind = type(weights).__name__
    return KINDS[kind](weights) if kind in KINDS else WindowedAttention(weights, weights)


run = partial(run_mixers, oracle)
