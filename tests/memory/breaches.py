"""Planted breaches: sound toys with one error each, and the law that must catch it.

`BREACHES` are caught; `UNSEEN` break nothing about which two runs of a memory could disagree, and
say why. `docs/laws.md` has the table.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import toy_memories as toys

from clew.memory import AbstractMemory, scan_steps
from clew.memory.laws import LAWS
from memory_samples import sample

Patch = Callable[..., Any]
stop = jax.lax.stop_gradient


class Breach(NamedTuple):
    """One error of a memory."""

    what: str
    """A description, as in the table."""
    law: str
    """The law that must report it before all others; empty if none can."""
    make: Callable[[], AbstractMemory]
    why: str = ""
    """Why no law can see it."""


class Patched(AbstractMemory):
    """A memory with some of its methods replaced; a patch's first argument is the memory."""

    inner: Any
    begins: Patch | None = eqx.field(static=True, default=None)
    acts: Patch | None = eqx.field(static=True, default=None)
    reads: Patch | None = eqx.field(static=True, default=None)
    learns: Patch | None = eqx.field(static=True, default=None)
    renews: Patch | None = eqx.field(static=True, default=None)
    stores: Patch | None = eqx.field(static=True, default=None)
    metric_names: tuple[str, ...] = eqx.field(static=True, default=())  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def input_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner one's."""
        return self.inner.input_size

    @property
    def output_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner one's."""
        return self.inner.output_size

    def init_state(self) -> Any:
        """Patched by `begins`."""
        return self.begins(self.inner) if self.begins else self.inner.init_state()

    def step(self, state: Any, x: Any, start: Any) -> Any:
        """Patched by `acts`."""
        return (self.acts or type(self.inner).step)(self.inner, state, x, start)

    def unroll(self, state: Any, xs: Any, starts: Any) -> Any:
        """Patched by `reads`."""
        memory = self if self.acts else self.inner
        return (self.reads or type(self.inner).unroll)(memory, state, xs, starts)

    def unroll_with_metrics(self, state: Any, xs: Any, starts: Any) -> Any:
        """Patched by `learns`."""
        if self.learns:
            return self.learns(self.inner, state, xs, starts)
        return *self.unroll(state, xs, starts), {}

    def refresh(self, state: Any) -> Any:
        """Patched by `renews`."""
        return (self.renews or type(self.inner).refresh)(self.inner, state)

    def compact(self, state: Any) -> Any:
        """Patched by `stores`."""
        return (self.stores or type(self.inner).compact)(self.inner, state)

    def expand(self, compacted: Any) -> Any:
        """The inner one's."""
        return self.inner.expand(compacted)


def _planted(what: str, law: str, kind: Any = toys.Average, **patches: Any) -> Breach:
    return Breach(what, law, lambda: Patched(toys.build(kind), **patches))


def _metric(what: str, law: str, learns: Patch) -> Breach:
    return _planted(what, law, learns=learns, metric_names=("energy",))


def _cache(what: str, renews: Patch, law: str = "refresh") -> Breach:
    return _planted(what, law, toys.Window, renews=renews)


def _scaled(m: Any, size: float) -> Any:
    """The memory with its output before tanh scaled down by this factor."""
    return eqx.tree_at(lambda m: m.read, m, m.read * size)


# Wrong ways to read a chunk.


def _starts_late(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, state, xs, jnp.concatenate([starts[:1], starts[:-1]]))


def _peeks_ahead(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, state, xs + 0.1 * jnp.roll(xs, -1, axis=0), starts)


def _peeks_at_starts(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    state, ys = scan_steps(m, state, xs, starts)
    return state, ys + 0.1 * jnp.roll(starts, -1).at[-1].set(False)[:, None]


def _begins_anew(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, m.init_state(), xs, starts)


def _loses_the_state(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return state, scan_steps(m, state, xs, starts)[1]


def _stops_at_steps(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return jax.lax.scan(lambda state, inputs: m.step(stop(state), *inputs), state, (xs, starts))


def _chunk_statistics(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, state, xs - 0.1 * jnp.mean(xs, axis=0, keepdims=True), starts)


def _counts_from_the_edge(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    state, ys = scan_steps(m, state, xs, starts)
    return state, ys + 0.01 * jnp.arange(len(xs), dtype=ys.dtype)[:, None]


def _state_of_the_step_before(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    _, ys = scan_steps(m, state, xs, starts)
    return (scan_steps(m, state, xs[:-1], starts[:-1])[0] if len(xs) > 1 else state), ys


def _first_start_only(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, state, xs, starts & (jnp.cumsum(starts) == 1))


def _no_start_at_the_edge(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, state, xs, starts.at[0].set(False))


def _no_start_at_the_end(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, state, xs, starts.at[-1].set(starts[-1] & (len(xs) == 1)))


def _where(wrong: Callable[[int], bool], m: Any, state: Any, xs: Any, starts: Any) -> Any:
    """Off by a thousandth where the length is `wrong`."""
    state, ys = scan_steps(m, state, xs, starts)
    return state, ys * (1.001 if wrong(len(xs)) else 1.0)


def _clips(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, state, jnp.clip(xs, -30.0, 30.0), starts)


def _overflows(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    state, ys = scan_steps(m, state, xs, starts)
    large = jnp.max(jnp.exp(jnp.abs(0.5 * xs)), axis=1, keepdims=True)
    return state, ys * (large / large)


def _rounds(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    rounded = xs + stop(xs.astype(jnp.bfloat16).astype(xs.dtype) - xs)
    return scan_steps(m, state, rounded, starts)


def _stops(which: str, m: Any, state: Any, xs: Any, starts: Any) -> Any:
    """Stops the gradient into one of its arguments; the values are right."""
    given = {"m": m, "state": state, "xs": xs}
    given[which] = stop_floats(given[which])
    return scan_steps(given["m"], given["state"], given["xs"], starts)


def stop_floats(tree: Any) -> Any:
    """Stops the gradient into every float array of a tree."""
    return jax.tree.map(lambda x: stop(x) if eqx.is_inexact_array(x) else x, tree)


def _stops_one(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(eqx.tree_at(lambda m: m.keep, m, stop(m.keep)), state, xs, starts)


def _stops_small(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return _stops_one(_scaled(m.inner, 1e-6), state, xs, starts)


def _acts_small(m: Any, state: Any, x: Any, start: Any) -> Any:
    return _scaled(m, 1e-6).step(state, x, start)


def _tenth_more(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    state, ys = scan_steps(_scaled(m.inner, 1e-6), state, xs, starts)
    return state, 1.1 * ys


def _half(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    state, ys = scan_steps(m, state, xs, starts)
    return state, ys.astype(jnp.float16)


def _one_output_more(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    state, ys = scan_steps(m, state, xs, starts)
    return state, jnp.concatenate([ys, ys[:, :1]], axis=1)


def _float_count_in_chunks(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    (hidden, count), ys = scan_steps(m, state, xs, starts)
    return (hidden, count.astype(jnp.float32)), ys


# Wrong ways to act.


def _resets_by_product(m: Any, state: Any, x: Any, start: Any) -> Any:
    keep = jnp.where(start, 0, 1)
    hidden, count = state[0] * keep.astype(state[0].dtype), state[1] * keep
    return m.step((hidden, count), x, jnp.zeros((), bool))


def _keeps_its_count(m: Any, state: Any, x: Any, start: Any) -> Any:
    (hidden, _), _ = m.step(state, x, start)
    return (hidden, state[1] + 1), jnp.tanh(hidden @ m.read + (state[1] % 2).astype(hidden.dtype))


def _forgets_late(m: Any, state: Any, x: Any, start: Any) -> Any:
    state, y = m.step(state, x, jnp.zeros((), bool))
    return m.forget(state, start), y


def _gradient_past_a_start(m: Any, state: Any, x: Any, start: Any) -> Any:
    fresh = m.forget(state, start)[0]
    finite = jnp.where(jnp.isfinite(state[0]), state[0], 0.0)
    return m.step((stop(fresh) + finite - stop(finite), state[1]), x, jnp.zeros((), bool))


def _ignores_starts(m: Any, state: Any, x: Any, start: Any) -> Any:
    return m.step(state, x, jnp.zeros((), bool))


def _forgets_half(m: Any, state: Any, x: Any, start: Any) -> Any:
    hidden, count = m.forget(state, start)
    return m.step((hidden.at[0].set(state[0][0]), count), x, jnp.zeros((), bool))


def _half_step(m: Any, state: Any, x: Any, start: Any) -> Any:
    state, y = m.step(state, x, start)
    return state, y.astype(jnp.float16)


def _short_count(m: Any, state: Any, x: Any, start: Any) -> Any:
    (hidden, count), y = m.step(state, x, start)
    return (hidden, count.astype(jnp.int16)), y


def _float_count(m: Any, state: Any, x: Any, start: Any) -> Any:
    (hidden, count), y = m.step(state, x, start)
    return (hidden, count.astype(jnp.float32)), y


def _one_leaf_less(m: Any, state: Any, x: Any, start: Any) -> Any:
    (hidden, _), y = m.step(state, x, start)
    return (hidden,), y


def _draws() -> Patch:
    """An initial state from a generator whose state advances."""
    random = np.random.default_rng(0)

    def begin(m: Any) -> Any:
        return jnp.asarray(random.standard_normal(4), jnp.float32), jnp.array(0, jnp.int32)

    return begin


# Wrong ways to batch.


@jax.custom_batching.custom_vmap
def _shared(x: jax.Array) -> jax.Array:
    return x


@_shared.def_vmap
def _shared_batched(axis_size: int, in_batched: list[bool], x: jax.Array) -> tuple[Any, bool]:
    return x + 1e-3 * jnp.broadcast_to(jnp.mean(x, axis=0, keepdims=True), x.shape), True


def _differs_from(size: int) -> Callable[[jax.Array], jax.Array]:
    """A function whose own batching rule computes something else for this many members."""

    @jax.custom_batching.custom_vmap
    def rule(x: jax.Array) -> jax.Array:
        return x

    @rule.def_vmap
    def batched(axis_size: int, in_batched: list[bool], x: jax.Array) -> tuple[Any, bool]:
        return (1.01 if axis_size >= size else 1.0) * x, True

    return rule


def _batched(rule: Callable[[jax.Array], jax.Array], m: Any, state: Any, x: Any, start: Any) -> Any:
    state, y = m.step(state, x, start)
    return state, y + stop(rule(stop(y)) - y)


# Ways to learn from something other than what `unroll` reads.


def _louder(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    state, ys = scan_steps(m, state, xs, starts)
    return state, 1.01 * ys, {}


def _untaught(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return *_stops("m", m, state, xs, starts), {}


def _stale_state(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return state, scan_steps(m, state, xs, starts)[1], {}


def _energy(shift: int, m: Any, state: Any, xs: Any, starts: Any) -> Any:
    """A metric of every step, shifted by this many."""
    after, ys = scan_steps(m, state, xs, starts)
    return after, ys, {"energy": jnp.roll(jnp.sum(ys * ys, axis=1), shift)}


def _energy_of_the_chunk(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    after, ys = scan_steps(m, state, xs, starts)
    return after, ys, {"energy": jnp.full(len(xs), jnp.sum(ys * ys))}


def _energy_untaught(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    after, ys = scan_steps(m, state, xs, starts)
    return after, ys, {"energy": stop(jnp.sum(ys * ys, axis=1))}


def _energy_at_the_edge(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    after, ys = scan_steps(m, state, xs, starts)
    return after, ys, {"energy": jnp.sum(ys * ys, axis=1) + jnp.arange(len(xs), dtype=ys.dtype)}


# Wrong ways to rebuild or to store a state.


def _halves(m: Any, state: Any) -> Any:
    return 0.5 * state[0], state[1]


def _floats(change: Patch, old: Any, new: Any) -> Any:
    return jax.tree.map(lambda a, b: change(a, b) if eqx.is_inexact_array(a) else a, old, new)


def _keys_only(m: Any, state: Any) -> Any:
    return m.refresh(state)._replace(values=state.values)


def _newest_only(m: Any, state: Any) -> Any:
    keys = m.refresh(state).keys
    return m.refresh(state)._replace(keys=state.keys.at[-1].set(keys[-1]))


def _stop_parameters(m: Any, state: Any) -> Any:
    return stop_floats(m).refresh(state)


def _stop_one_parameter(m: Any, state: Any) -> Any:
    return eqx.tree_at(lambda m: m.value, m, stop(m.value)).refresh(state)


def _stop_state(m: Any, state: Any) -> Any:
    return m.refresh(stop_floats(state))


def _right_gradient_only(m: Any, state: Any) -> Any:
    return _floats(lambda old, new: stop(old) + new - stop(new), state, m.refresh(state))


def _half_way(m: Any, state: Any) -> Any:
    return _floats(lambda old, new: (old + new) / 2, state, m.refresh(state))


def _half_keys(m: Any, state: Any) -> Any:
    return m.refresh(state)._replace(keys=state.keys.astype(jnp.float16))


# Things about which two runs of a memory never disagree, and models of the library.


def _wrong(m: Any, state: Any, x: Any, start: Any) -> Any:
    state, y = m.step(state, x, start)
    return state, 1.1 * y


def _forgets(m: Any, state: Any, x: Any, start: Any) -> Any:
    return m.step(m.init_state(), x, start)[0], m.step(m.init_state(), x, start)[1]


def _energies(size: float, m: Any, state: Any, xs: Any, starts: Any) -> Any:
    after, ys, metrics = _energy(0, m, state, xs, starts)
    return after, ys, {"energy": size * metrics["energy"]}


def _clips_far(m: Any, state: Any, xs: Any, starts: Any) -> Any:
    return scan_steps(m, state, jnp.clip(xs, -1e6, 1e6), starts)


def _unseen(what: str, why: str, **patches: Any) -> Breach:
    names = ("energy",) if "learns" in patches else ()
    return _planted(what, "", metric_names=names, **patches)._replace(why=why)


def _first_array(m: Any, state: Any) -> Any:
    return jax.tree.leaves(m.compact(state))[:1]


def _unrefreshed(name: str) -> AbstractMemory:
    return Patched(sample(name), renews=lambda m, state: state)


def _carried() -> AbstractMemory:
    # With r = 3 outputs would not depend on where the tick begins.
    return sample("arelit", frequencies="code", scale="code", tick="carried", r=4)


BREACHES: tuple[Breach, ...] = (
    _planted("the state is multiplied by zero at a start", "reset", acts=_resets_by_product),
    _planted("a counter is not reset", "reset", acts=_keeps_its_count),
    _planted("the state is reset after the start was read", "reset", acts=_forgets_late),
    _planted("the same in chunks alone", "reset", reads=_starts_late),
    _planted("a chunk mixes in the next observation", "causal", reads=_peeks_ahead),
    _planted("a chunk sees the next start", "causal", reads=_peeks_at_starts),
    _planted("every chunk begins anew", "stream", reads=_begins_anew),
    _planted("the state after a chunk is the one before", "stream", reads=_loses_the_state),
    _planted("no gradient through the steps of a chunk", "stream", reads=_stops_at_steps),
    _planted(
        "chunks of 5 and more are 0.1 % larger", "stream", reads=partial(_where, lambda n: n >= 5)
    ),
    _planted("refresh halves the state", "refresh", renews=_halves),
    _planted("half of the state is stored", "replay", stores=_halves),
    _planted(
        "a batching rule computes something else", "batch", acts=partial(_batched, _differs_from(1))
    ),
    _planted("one output too many", "interface", reads=_one_output_more),
    _planted("a counter becomes a float in a chunk", "interface", reads=_float_count_in_chunks),
    # Chunks.
    _planted("a chunk subtracts its own mean", "causal", reads=_chunk_statistics),
    _planted("positions count from the chunk's edge", "reset", reads=_counts_from_the_edge),
    _planted("the state after a chunk is one step old", "stream", reads=_state_of_the_step_before),
    _planted("only the first start of a chunk counts", "reset", reads=_first_start_only),
    _planted("a start at a chunk's edge is lost", "reset", reads=_no_start_at_the_edge),
    _planted("a start at a chunk's end is lost", "reset", reads=_no_start_at_the_end),
    _planted("chunks of 300 and more differ", "stream", reads=partial(_where, lambda n: n >= 300)),
    _planted("chunks of even length differ", "stream", reads=partial(_where, lambda n: n % 2 == 0)),
    _planted("multiples of 64 differ", "stream", reads=partial(_where, lambda n: n % 64 == 0)),
    _planted("chunks clip observations at 30", "stream", reads=_clips),
    _planted("chunks overflow for observations of 1,000", "stream", reads=_overflows),
    _planted("chunks read observations in bfloat16", "stream", reads=_rounds),
    _planted("no gradient to the parameters", "stream", reads=partial(_stops, "m")),
    _planted("no gradient to the state before", "stream", reads=partial(_stops, "state")),
    _planted("no gradient to the observations", "stream", reads=partial(_stops, "xs")),
    _planted("no gradient to one parameter", "stream", reads=_stops_one),
    _planted("no gradient where outputs are 1e-6", "stream", reads=_stops_small, acts=_acts_small),
    _planted("outputs of 1e-6 off by 10 %", "stream", reads=_tenth_more, acts=_acts_small),
    _planted("outputs of a chunk are float16", "interface", reads=_half),
    # Steps.
    _planted("gradients pass a start", "reset", acts=_gradient_past_a_start),
    _planted("starts are ignored", "reset", acts=_ignores_starts),
    _planted("a part of the state is not reset", "reset", acts=_forgets_half),
    _planted("outputs of a step are float16", "interface", acts=_half_step),
    _planted("a counter becomes int16 in a step", "interface", acts=_short_count),
    _planted("a counter becomes a float in a step", "interface", acts=_float_count),
    _planted("a step drops an array of the state", "interface", acts=_one_leaf_less),
    _planted("the initial state is random", "interface", begins=_draws()),
    _planted("members of a batch mix", "causal", acts=partial(_batched, _shared)),
    _planted("batches of 8 and more differ", "batch", acts=partial(_batched, _differs_from(8))),
    # What learners call.
    _planted("learning reads 1 % louder", "metrics", learns=_louder),
    _planted("learning has no gradient", "metrics", learns=_untaught),
    _planted("learning loses the state", "metrics", learns=_stale_state),
    _planted("a metric has no name", "interface", learns=partial(_energy, 0)),
    _planted("a metric that is named is missing", "interface", metric_names=("energy",)),
    _metric("a metric is that of the next step", "causal", partial(_energy, -1)),
    _metric("a metric is that of the chunk", "causal", _energy_of_the_chunk),
    _metric("a metric counts from the chunk's edge", "reset", _energy_at_the_edge),
    # Caches.
    _cache("no refresh at all", lambda m, state: state),
    _cache("refresh stops gradients to the parameters", _stop_parameters),
    _cache("refresh stops gradients to one parameter", _stop_one_parameter),
    _cache("refresh stops gradients to the state", _stop_state),
    _cache("refresh rebuilds keys, not values", _keys_only),
    _cache("refresh rebuilds the newest key alone", _newest_only),
    _cache("refresh has the gradients, not the values", _right_gradient_only),
    _cache("refresh goes half of the way", _half_way),
    _cache("refresh turns keys into float16", _half_keys, "interface"),
    _planted("what is left out of a stored state stays out", "interface", stores=_first_array),
    # Models of the library.
    Breach(
        "Transformer-XL without its refresh", "refresh", partial(_unrefreshed, "transformer_xl")
    ),
    Breach(
        "GTrXL whose window grows with the chunk", "stream", partial(sample, "gtrxl", banded=False)
    ),
    Breach("AReLiT whose tick is never reset", "reset", _carried),
)

UNSEEN: tuple[Breach, ...] = (
    _unseen(
        "the same wrong formula in `step` and in `unroll`",
        "both agree; the oracle sees it",
        acts=_wrong,
    ),
    _unseen(
        "nothing is remembered",
        "`none` does so on purpose; scores on tasks show it",
        acts=_forgets,
    ),
    _unseen(
        "a metric of twice its size",
        "nothing says what it should be",
        learns=partial(_energies, 2.0),
    ),
    _unseen(
        "a metric that a loss cannot move", "nothing says that it should", learns=_energy_untaught
    ),
    Breach(
        "keys are kept, but not what they were made of",
        "",
        partial(toys.build, toys.Keys),
        "nothing is there to rebuild them from, as in a GRU's h",
    ),
    _unseen(
        "chunks of 1,000 and more differ",
        "no such chunk is read; `lengths` chooses others",
        reads=partial(_where, lambda n: n >= 1000),
    ),
    _unseen(
        "batches of 64 and more differ",
        "a batch has 9 members",
        acts=partial(_batched, _differs_from(64)),
    ),
    _unseen(
        "observations beyond 10^6 are clipped",
        "they have sizes of 1, 10 and 1,000",
        reads=_clips_far,
    ),
)


def planted(what: str) -> Breach:
    """The caught breach with this description."""
    (found,) = (breach for breach in BREACHES if breach.what == what)
    return found


def caught_table() -> str:
    """The caught breaches, by law, in Markdown."""
    rows = [f"| `{law}` | {_listed(law)} |" for law in LAWS]
    return "\n".join(["| law | breaches of which it is the first named |", "|---|---|", *rows])


def unseen_table() -> str:
    """The breaches that no law sees, in Markdown."""
    rows = [f"| {breach.what} | {breach.why} |" for breach in UNSEEN]
    return "\n".join(["| breach | why no law sees it |", "|---|---|", *rows])


def _listed(law: str) -> str:
    return "; ".join(breach.what for breach in BREACHES if breach.law == law)


if __name__ == "__main__":
    print(caught_table(), unseen_table(), sep="\n\n")
