"""A peer in Equinox: memax. Runs in .venv-peers.

A memory whose function differs still gets weights of the same sizes, and the difference of its
outputs is reported.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from memax.equinox.semigroups.fart import FART
from memax.equinox.semigroups.gdn import GDN
from memax.equinox.semigroups.lru import LRU
from memax.equinox.set_actions.gru import GRU
from memax.equinox.set_actions.lstm import LSTM

from jax_subject import JaxSubject, joined, parts
from serve import Arrays, Sizes, serve

KEY = jax.random.key(0)


def memax_lstm(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """memax's LSTM; its output is o * c, without the tanh."""
    return of_memax_cell(sizes, arrays, LSTM(sizes.width, key=KEY), "ifco")


def memax_gru(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """memax's GRU; its reset gate acts before the product, and z is the fraction that is let in."""
    return of_memax_cell(sizes, arrays, GRU(sizes.width, key=KEY), "rzh")


def of_memax_cell(sizes: Sizes, arrays: Arrays, model: Any, gates: str) -> JaxSubject:
    """The weights gate by gate, [out, in]."""

    def places(model: Any) -> list[Any]:
        cell = model.algebra.algebra
        found = [getattr(cell, f"{part}_{g}").weight for part in "WU" for g in gates]
        return found + [getattr(cell, f"W_{g}").bias for g in gates]

    inputs, recurrent, biases = parts(arrays, len(gates))
    given = [w.T for w in (*inputs, *recurrent)] + list(biases)

    def gather(gradients: Any) -> Arrays:
        found, count = places(gradients), len(gates)
        return {
            "input_weight": joined(w.T for w in found[:count]),
            "recurrent_weight": joined(w.T for w in found[count : 2 * count]),
            "bias": joined(found[2 * count :]),
        }

    return of_memax(sizes, arrays, eqx.tree_at(places, model, given), gather)


def memax_linear_attention(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """One head; divides by the last key instead of the sum of keys, and adds its input."""
    head = arrays["query"].shape[1]
    model = FART(hidden_size=sizes.width, recurrent_size=head, key=KEY)
    model = eqx.tree_at(lambda m: m.output.bias, model, jnp.zeros(sizes.width))
    places = {"query": "Q", "key": "K", "value": "V", "output": "output"}
    return of_products(sizes, arrays, model, places)


def memax_gated_delta_net(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """One head; every state and every product of transitions is kept."""
    model = GDN(sizes.width, arrays["query"].shape[1], key=KEY)
    biases = (jnp.zeros(1), jnp.full(1, 4.0), jnp.zeros(sizes.width))
    model = eqx.tree_at(lambda m: (m.w.bias, m.alpha.bias, m.output.bias), model, biases)
    places = {"query": "Q", "key": "K", "value": "V", "rate": "w", "keep": "alpha"}
    return of_products(sizes, arrays, model, places | {"output": "output"})


def memax_lru(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """Its B and C are [out, in]."""
    model = LRU(sizes.width, sizes.width, KEY)
    names = {"nu": "nu_log", "theta": "theta_log", "gamma": "gamma_log", "skip": "D"}
    names |= {"b_real": "B_re", "b_imag": "B_im", "c_real": "C_re", "c_imag": "C_im"}

    def places(model: Any) -> list[Any]:
        return [getattr(model, name) for name in names.values()]

    model = eqx.tree_at(places, model, [jnp.asarray(arrays[n]).T for n in names])

    def gather(gradients: Any) -> Arrays:
        return {n: np.asarray(w).T for n, w in zip(names, places(gradients), strict=True)}

    return of_memax(sizes, arrays, model, gather)


def of_products(sizes: Sizes, arrays: Arrays, model: Any, layers: dict[str, str]) -> JaxSubject:
    """A model of linear layers, given the arrays of their weights."""

    def places(model: Any) -> list[Any]:
        return [getattr(model, layer).weight for layer in layers.values()]

    model = eqx.tree_at(places, model, [jnp.asarray(arrays[n]).T for n in layers])

    def gather(gradients: Any) -> Arrays:
        return {n: np.asarray(w).T for n, w in zip(layers, places(gradients), strict=True)}

    return of_memax(sizes, arrays, model, gather)


def of_memax(sizes: Sizes, arrays: Arrays, model: Any, gather: Any) -> JaxSubject:
    """Any of memax's models: a chunk and a step are one call, which returns every state."""
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def state(actors: int) -> Any:
        return jax.tree.map(
            lambda x: jnp.broadcast_to(x, (actors, *x.shape)), model.initialize_carry()
        )

    def call(params: Any, state: Any, xs: Any, starts: Any) -> Any:
        whole = eqx.combine(params, static)
        return jax.vmap(lambda h, x, start: whole(h, (x, start)))(state, xs, starts)

    def step(params: Any, state: Any, xs: Any, starts: Any) -> Any:
        states, ys = call(params, state, xs[:, None], starts[:, None])
        return jax.tree.map(lambda x: x[:, -1], states), ys[:, 0]

    return JaxSubject(
        sizes,
        arrays,
        params=params,
        chunk=lambda params, xs, starts: call(params, state(len(xs)), xs, starts)[1],
        step=step,
        state=state,
        gather=gather,
        batch_first=True,
    )


if __name__ == "__main__":
    serve(
        ("memax", "equinox", "jax"),
        {
            "memax.lstm": memax_lstm,
            "memax.gru": memax_gru,
            "memax.linear_attention": memax_linear_attention,
            "memax.gated_delta_net": memax_gated_delta_net,
            "memax.lru": memax_lru,
        },
    )
