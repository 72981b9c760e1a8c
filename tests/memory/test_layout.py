"""The layout of parameters and state, from the code, is complete, in order, and has axes."""

import equinox as eqx
import jax
import pytest

from clew.memory import MEMORIES
from clew.memory.parts.layout import parameter_layout, state_layout
from memory_samples import DIFFERENT, sample
from slow_cases import fast_only


@pytest.mark.parametrize("name", fast_only(MEMORIES, *DIFFERENT))
def test_every_array_is_listed(name: str) -> None:
    memory = sample(name)
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(memory, eqx.is_array))
    found = parameter_layout(memory)
    named = [jax.tree_util.keystr(path).removeprefix(".") for path, _ in leaves]
    assert [leaf.path for leaf in found] == named
    assert [leaf.shape for leaf in found] == [leaf.shape for _, leaf in leaves]
    assert all(len(leaf.axes.split()) == len(leaf.shape) for leaf in found)
    state = jax.tree.leaves(jax.eval_shape(memory.init_state))
    assert [leaf.shape for leaf in state_layout(memory)] == [leaf.shape for leaf in state]
