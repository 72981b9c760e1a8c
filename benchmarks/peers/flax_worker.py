"""Peers in Flax and JAX: flax's own cells, memorax, mlstm_kernels. Runs in .venv-peers.

Weights are copied from the arrays that every library gets. A library whose function differs still
gets weights of the same sizes, and the difference of its outputs is reported.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from import_parts import import_memorax, import_part
from jax_subject import JaxSubject, joined, parts
from serve import Arrays, Sizes, serve

KEY = jax.random.key(0)
memorax = import_memorax()
MLSTM = "mlstm_kernels.jax"
in_chunks = import_part(f"{MLSTM}.chunkwise.native.fwbw", MLSTM, f"{MLSTM}.chunkwise")
by_steps = import_part(f"{MLSTM}.recurrent.native_step", MLSTM, f"{MLSTM}.recurrent")


def lstm_params(arrays: Arrays) -> dict[str, Any]:
    """The weights in flax's layout, gate by gate."""
    found: dict[str, Any] = {}
    for gate, w, u, b in zip("ifgo", *parts(arrays, 4), strict=True):
        found |= {f"i{gate}": {"kernel": w}, f"h{gate}": {"kernel": u, "bias": b}}
    return found


def lstm_gradients(cell: dict[str, Any]) -> Arrays:
    """The way back."""
    return {
        "input_weight": joined(cell[f"i{g}"]["kernel"] for g in "ifgo"),
        "recurrent_weight": joined(cell[f"h{g}"]["kernel"] for g in "ifgo"),
        "bias": joined(cell[f"h{g}"]["bias"] for g in "ifgo"),
    }


def gru_params(arrays: Arrays) -> dict[str, Any]:
    """The weights in flax's layout, gate by gate."""
    found: dict[str, Any] = {}
    for gate, w, u, b in zip("rzn", *parts(arrays, 3), strict=True):
        found |= {f"i{gate}": {"kernel": w, "bias": b}, f"h{gate}": {"kernel": u}}
    found["hn"]["bias"] = jnp.asarray(arrays["candidate_bias"])
    return found


def gru_gradients(cell: dict[str, Any]) -> Arrays:
    """The way back."""
    return {
        "input_weight": joined(cell[f"i{g}"]["kernel"] for g in "rzn"),
        "recurrent_weight": joined(cell[f"h{g}"]["kernel"] for g in "rzn"),
        "bias": joined(cell[f"i{g}"]["bias"] for g in "rzn"),
        "candidate_bias": cell["hn"]["bias"],
    }


CELLS = {
    "lstm": (nn.OptimizedLSTMCell, lstm_params, lstm_gradients),
    "gru": (nn.GRUCell, gru_params, gru_gradients),
}


def of_flax(kind: str) -> Any:
    """flax's `RNN` over a cell, which has no input for starts."""

    def build(sizes: Sizes, arrays: Arrays) -> JaxSubject:
        make, params, gradients = CELLS[kind]
        cell = make(sizes.width)
        rnn = nn.RNN(make(sizes.width))
        return JaxSubject(
            sizes,
            arrays,
            params=params(arrays),
            chunk=lambda p, xs, starts: rnn.apply({"params": {"cell": p}}, xs),
            step=lambda p, state, xs, starts: cell.apply({"params": p}, state, xs),
            state=lambda actors: cell.initialize_carry(KEY, (actors, sizes.width)),
            gather=gradients,
            batch_first=True,
            takes_starts=False,
        )

    return build


def of_memorax_cell(kind: str) -> Any:
    """memorax's `RNN`, flax's cells with starts."""

    def build(sizes: Sizes, arrays: Arrays) -> JaxSubject:
        make, params, gradients = CELLS[kind]
        model = memorax.RNN(make(sizes.width))
        return of_memorax(
            sizes, arrays, model, {"cell": params(arrays)}, lambda g: gradients(g["cell"])
        )

    return build


def memorax_linear_attention(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """One head; its last product reads a norm of the attention's result, so that outputs differ."""
    head = arrays["query"].shape[1]
    cell = memorax.LinearAttentionCell(
        head_dim=head,
        num_heads=1,
        kernel_init=nn.initializers.lecun_normal(),
        bias_init=nn.initializers.zeros_init(),
        param_dtype=jnp.float32,
    )
    params = {n: {"kernel": jnp.asarray(arrays[n])[:, None]} for n in ("query", "key", "value")}
    output = jnp.asarray(arrays["output"])
    params["Dense_0"] = {"kernel": output, "bias": jnp.zeros(sizes.width)}
    params["RMSNorm_0"] = {"scale": jnp.ones(head)}

    def gather(gradients: dict[str, Any]) -> Arrays:
        cell = gradients["cell"]
        found = {n: cell[n]["kernel"][:, 0] for n in ("query", "key", "value")}
        return found | {"output": cell["Dense_0"]["kernel"]}

    return of_memorax(sizes, arrays, memorax.Memoroid(cell), {"cell": params}, gather)


def memorax_min_gru(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """Its state is the logarithm of h, scanned in parallel."""
    params = {"z": {"kernel": jnp.asarray(arrays["gate"])}}
    params["h"] = {"kernel": jnp.asarray(arrays["candidate"])}

    def gather(gradients: dict[str, Any]) -> Arrays:
        cell = gradients["cell"]
        return {"gate": cell["z"]["kernel"], "candidate": cell["h"]["kernel"]}

    cell = memorax.MinGRUCell(features=sizes.width)
    return of_memorax(sizes, arrays, memorax.Memoroid(cell), {"cell": params}, gather)


def memorax_lru(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """Its B and C are [out, in]."""
    names = {"nu": "nu_log", "theta": "theta_log", "gamma": "gamma_log", "skip": "D"}
    names |= {"b_real": "B_real", "b_imag": "B_imag", "c_real": "C_real", "c_imag": "C_imag"}
    params = {theirs: jnp.asarray(arrays[n]).T for n, theirs in names.items()}

    def gather(gradients: dict[str, Any]) -> Arrays:
        return {n: gradients["cell"][theirs].T for n, theirs in names.items()}

    cell = memorax.LRUCell(features=sizes.width, hidden_dim=sizes.width)
    return of_memorax(sizes, arrays, memorax.Memoroid(cell), {"cell": params}, gather)


def mlstm_in_chunks(sizes: Sizes, arrays: Arrays) -> JaxSubject:
    """mlstm_kernels' recurrence for processors, one head; it has no input for starts."""
    head = arrays["query"].shape[1]

    def terms(params: Any, xs: Any) -> tuple[Any, ...]:
        query, key, value = (xs @ params[n] for n in ("query", "key", "value"))
        gates = (xs @ params["input_gate"])[..., 0], (xs @ params["forget_gate"])[..., 0] + 4.0
        return tuple(y[:, None] for y in (query, key, value, *gates))

    def chunk(params: Any, xs: Any, starts: Any) -> Any:
        size = max(n for n in range(1, 65) if xs.shape[1] % n == 0)
        read = in_chunks.mlstm_chunkwise__native_autograd(*terms(params, xs), chunk_size=size)
        return read[:, 0] @ params["output"]

    def step(params: Any, state: Any, xs: Any, starts: Any) -> Any:
        *of_heads, i, f = terms(params, xs)
        read, state = by_steps.mlstm_recurrent_step__native(
            *of_heads, i[..., None], f[..., None], *state
        )
        return state, read[:, 0] @ params["output"]

    def state(actors: int) -> Any:
        lead = (actors, 1)
        return jnp.zeros((*lead, head, head)), jnp.zeros((*lead, head)), jnp.zeros((*lead, 1))

    names = ("query", "key", "value", "input_gate", "forget_gate", "output")
    return JaxSubject(
        sizes,
        arrays,
        params={n: jnp.asarray(arrays[n]) for n in names},
        chunk=chunk,
        step=step,
        state=state,
        gather=lambda gradients: gradients,
        batch_first=True,
        takes_starts=False,
    )


def of_memorax(sizes: Sizes, arrays: Arrays, model: Any, params: Any, gather: Any) -> JaxSubject:
    """Any of memorax's sequence models: a chunk and a step are one call."""

    def state(actors: int) -> Any:
        return model.initialize_carry(KEY, (actors, sizes.width))

    def chunk(params: Any, xs: Any, starts: Any) -> Any:
        return model.apply({"params": params}, xs, starts, state(len(xs)))[1]

    def step(params: Any, state: Any, xs: Any, starts: Any) -> Any:
        state, ys = model.apply({"params": params}, xs[:, None], starts[:, None], state)
        return state, ys[:, 0]

    return JaxSubject(
        sizes,
        arrays,
        params=params,
        chunk=chunk,
        step=step,
        state=state,
        gather=gather,
        batch_first=True,
    )


if __name__ == "__main__":
    serve(
        ("flax", "memorax", "mlstm-kernels", "jax"),
        {
            "flax.lstm": of_flax("lstm"),
            "flax.gru": of_flax("gru"),
            "memorax.lstm": of_memorax_cell("lstm"),
            "memorax.gru": of_memorax_cell("gru"),
            "memorax.linear_attention": memorax_linear_attention,
            "memorax.min_gru": memorax_min_gru,
            "memorax.lru": memorax_lru,
            "mlstm-kernels.mlstm": mlstm_in_chunks,
        },
    )
