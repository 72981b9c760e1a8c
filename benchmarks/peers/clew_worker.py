"""clew's own side of the comparison; runs in clew's environment."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from clew.agents.network import Agent, NetworkConfig
from clew.memory import make_memory, mlstm
from clew.memory.linear_transformer import LinearAttention
from clew.memory.parts.blocks import Linear
from clew.memory.parts.linear_recurrence import states_of
from clew.memory.parts.matrix_recurrence import MatrixInputs, advance, advance_chunk
from clew.memory.parts.products import product
from clew.memory.parts.state_space import polar, to_complex
from jax_subject import JaxSubject
from serve import Arrays, Sizes, serve

KEY = jax.random.key(0)


def lstm(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """One cell; the recurrent products have no biases."""
    memory = make_memory("lstm", input_size=sizes.width, key=KEY, hidden_size=sizes.width)
    return subject(sizes, arrays, filled(memory, cell, arrays), cell)


def gru(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """One cell."""
    memory = make_memory("gru", input_size=sizes.width, key=KEY, hidden_size=sizes.width)
    return subject(sizes, arrays, filled(memory, cell, arrays), cell)


def linear_attention(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """One head of the attention alone, without its layer's norm, gates and feed-forward net."""
    width, head = arrays["query"].shape
    attention = LinearAttention(
        norm=None,
        inputs=Linear(width, 3 * head, key=KEY, init="lecun"),
        output=Linear(head, width, key=KEY, init="lecun"),
        num_heads=1,
        head_size=head,
        epsilon=1e-6,
    )

    def where(a: Any) -> dict[str, Any]:
        return {"projections": a.inputs.weight, "output": a.output.weight}

    weights = {
        "projections": jnp.concatenate([arrays[n] for n in ("query", "key", "value")], 1),
        "output": arrays["output"],
    }
    attention = filled(attention, where, weights)

    def gather(gradients: Any) -> Arrays:
        query, key, value = jnp.split(gradients.inputs.weight, 3, 1)
        output = gradients.output.weight
        return {"query": query, "key": key, "value": value, "output": output}

    return subject(sizes, arrays, attention, gather)


class GatedDeltaRule(eqx.Module):
    """One head of the recurrence alone: no convolution, norm or gate around it."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    rate: jax.Array
    keep: jax.Array
    output: jax.Array

    def init_state(self) -> Any:
        """Zeros."""
        return jnp.zeros((1, self.value.shape[1], self.key.shape[1]))

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        state, read = advance(state, self._terms(x), start)
        return state, product(read[0], self.output)

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """A chunk."""
        state, read = advance_chunk("auto", state, self._terms(xs), starts)
        return state, product(read[:, 0], self.output)

    def _terms(self, x: Any) -> MatrixInputs:
        """Keys and queries of length 1; a begins near 1."""
        query, key = jax.nn.silu(product(x, self.query)), jax.nn.silu(product(x, self.key))
        query, key = (y / (jnp.linalg.norm(y, axis=-1, keepdims=True) + 1e-6) for y in (query, key))
        value, log_keep = product(x, self.value), jax.nn.log_sigmoid(product(x, self.keep) + 4.0)
        query, key, value = (y[..., None, :] for y in (query, key, value))
        rate = 2 * jax.nn.sigmoid(product(x, self.rate))
        return MatrixInputs(query, key, value, log_keep, rate)


class MLSTMCell(eqx.Module):
    """One head of the recurrence alone: no convolution, norm or gate around it."""

    query: jax.Array
    key: jax.Array
    value: jax.Array
    input_gate: jax.Array
    forget_gate: jax.Array
    output: jax.Array

    def init_state(self) -> Any:
        """Zeros; n in the last row."""
        size = self.value.shape[1]
        return mlstm.MLSTMState(jnp.zeros((1, size + 1, size)), jnp.zeros(1))

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        state, read = mlstm.advance(state, self._terms(x), start, 1e-6)
        return state, product(read[0], self.output)

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """A chunk."""
        state, read = mlstm.advance_chunk("auto", state, self._terms(xs), starts, 1e-6)
        return state, product(read[:, 0], self.output)

    def _terms(self, x: Any) -> mlstm.MLSTMInputs:
        """f begins near 1."""
        query, key, value = (product(x, w) for w in (self.query, self.key, self.value))
        value = jnp.concatenate([value, jnp.ones_like(value[..., :1])], axis=-1)
        query, key, value = (y[..., None, :] for y in (query, key / key.shape[-1] ** 0.5, value))
        log_f = jax.nn.log_sigmoid(product(x, self.forget_gate) + 4.0)
        return mlstm.MLSTMInputs(query, key, value, log_f, product(x, self.input_gate))


class Diagonal(eqx.Module):
    """A state whose numbers decay independently; a subclass defines decays, inputs and outputs."""

    @abc.abstractmethod
    def init_state(self) -> Any:
        """Zeros."""

    @abc.abstractmethod
    def terms(self, x: Any) -> Any:
        """The factors that steps keep, and the inputs that they add."""

    @abc.abstractmethod
    def read(self, state: Any, x: Any) -> Any:
        """The output of a state."""

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """One observation."""
        keep, add = self.terms(x)
        state = keep * jnp.where(start, 0.0, state) + add
        return state, self.read(state, x)

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """A chunk."""
        keep, add = self.terms(xs)
        states = states_of(jnp.broadcast_to(keep, add.shape), add, state, starts)
        return states[-1], self.read(states, xs)


class MinGRUCell(Diagonal):
    """Without a projection that narrows; the candidate is positive, as where it has logarithms."""

    gate: jax.Array
    candidate: jax.Array

    def init_state(self) -> Any:
        return jnp.zeros(self.gate.shape[1])

    def terms(self, x: Any) -> Any:
        z, h = product(x, self.gate), product(x, self.candidate)
        h = jnp.where(h >= 0.0, h + 0.5, jax.nn.sigmoid(h))
        return jax.nn.sigmoid(-z), jax.nn.sigmoid(z) * h

    def read(self, state: Any, x: Any) -> Any:
        return state


class LRUCell(Diagonal):
    """Without an activation after it."""

    nu: jax.Array
    theta: jax.Array
    gamma: jax.Array
    skip: jax.Array
    b_real: jax.Array
    b_imag: jax.Array
    c_real: jax.Array
    c_imag: jax.Array

    def init_state(self) -> Any:
        return jnp.zeros(self.nu.shape, jnp.complex64)

    def terms(self, x: Any) -> Any:
        both = product(x, jnp.concatenate([self.b_real, self.b_imag], axis=1))
        real, imag = jnp.split(both * jnp.tile(jnp.exp(self.gamma), 2), 2, axis=-1)
        return polar(-jnp.exp(self.nu), jnp.exp(self.theta)), to_complex(real, imag)

    def read(self, state: Any, x: Any) -> Any:
        both = jnp.concatenate([jnp.real(state), jnp.imag(state)], axis=-1)
        return product(both, jnp.concatenate([self.c_real, -self.c_imag])) + self.skip * x


def of_arrays(module: type[Any]) -> Any:
    """A module whose fields are arrays, by name."""

    def build(sizes: Sizes, arrays: Arrays) -> JaxSubject:
        names = list(module.__dataclass_fields__)
        made = module(*(jnp.asarray(arrays[name]) for name in names))
        return subject(sizes, arrays, made, lambda given: {n: getattr(given, n) for n in names})

    return build


def policy(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """An agent over one LSTM cell, actor and critic with one hidden layer each."""
    memory = make_memory("lstm", input_size=sizes.width, key=KEY, hidden_size=sizes.width)
    network = NetworkConfig(head_size=sizes.width)
    actions = arrays["actor_output"].shape[1]
    agent = filled(Agent(memory, actions, key=KEY, network=network), heads, arrays)
    agent = eqx.tree_at(lambda a: a.memory, agent, filled(agent.memory, cell, arrays))
    return subject(sizes, arrays, agent, heads, of_policy=True)


def cell(memory: Any) -> Arrays:
    """The arrays of the single cell of an LSTM or GRU, or their gradients."""
    one = memory.cells[0]
    found = {"input_weight": one.inputs.weight, "recurrent_weight": one.recurrent.weight}
    found["bias"] = one.inputs.bias
    candidate = one.recurrent_bias
    return found if candidate is None else found | {"candidate_bias": candidate}


def heads(agent: Any) -> Arrays:
    """The arrays of both heads."""
    found = {}
    for name, head in (("actor", agent.heads.actor), ("critic", agent.heads.critic)):
        for part, linear in (("hidden", head.hidden), ("output", head.output)):
            found[f"{name}_{part}"] = linear.weight
            found[f"{name}_{part}_bias"] = linear.bias
    return found


def filled(module: Any, where: Any, arrays: Arrays) -> Any:
    """A module with the given arrays in the places that `where` names."""
    names = list(where(module))

    def places(module: Any) -> list[Any]:
        return [where(module)[name] for name in names]

    given = [
        jnp.asarray(arrays[n]).reshape(p.shape) for n, p in zip(names, places(module), strict=True)
    ]
    return eqx.tree_at(places, module, given)


def subject(
    sizes: Sizes, arrays: Arrays, module: Any, gather: Any, *, of_policy: bool = False
) -> JaxSubject:
    """Any object with `unroll` and `step`, called as in training: time first, batched by vmap."""
    params, static = eqx.partition(module, eqx.is_inexact_array)

    def state(actors: int) -> Any:
        one = module.init_state()
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (actors, *x.shape)), one)

    def chunk(params: Any, xs: Any, starts: Any) -> Any:
        whole = eqx.combine(params, static)
        unroll = jax.vmap(whole.unroll, in_axes=(0, 1, 1), out_axes=(0, 1))
        return together(unroll(state(xs.shape[1]), xs, starts)[1])

    def step(params: Any, state: Any, xs: Any, starts: Any) -> Any:
        state, outputs = jax.vmap(eqx.combine(params, static).step)(state, xs, starts)
        return state, together(outputs)

    def together(outputs: Any) -> Any:
        if not of_policy:
            return outputs
        log_probs, values = jax.nn.log_softmax(outputs.logits), outputs.value[..., None]
        return jnp.concatenate([log_probs, values], -1)

    return JaxSubject(
        sizes,
        arrays,
        params=params,
        chunk=chunk,
        step=step,
        state=state,
        gather=gather,
        loss=policy_loss if of_policy else None,
    )


def policy_loss(outputs: Any, targets: dict[str, Any]) -> Any:
    """A2C's loss: outputs [time, env, actions + 1] are log-probabilities and the value."""
    log_probs, values = outputs[..., :-1], outputs[..., -1]
    taken = jnp.take_along_axis(log_probs, targets["actions"][..., None], -1)[..., 0]
    entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, -1)
    errors = jnp.square(targets["returns"] - values)
    return jnp.mean(-taken * targets["advantages"] + 0.5 * errors - 0.01 * entropy)


if __name__ == "__main__":
    serve(
        ("clew", "jax"),
        {
            "clew.lstm": lstm,
            "clew.gru": gru,
            "clew.linear_attention": linear_attention,
            "clew.gated_delta_net": of_arrays(GatedDeltaRule),
            "clew.mlstm": of_arrays(MLSTMCell),
            "clew.min_gru": of_arrays(MinGRUCell),
            "clew.lru": of_arrays(LRUCell),
            "clew.policy": policy,
        },
    )
