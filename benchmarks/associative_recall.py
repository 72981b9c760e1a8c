"""How many pairs a memory holds: multi-query associative recall, learned by supervision.

    python -m benchmarks.associative_recall results/associative-recall

A sequence shows pairs of a key and a value, one token after the other, and then asks for the value
of every key, in random order and between blanks; the answer is due at the query itself. Without
reward and exploration, only the capacity of the state and the training matter.

Keys and values are separate tokens, as in the paper, so that a memory must bind consecutive tokens
before it can hold them. With `--together` an observation has the token and the one before it, and
only capacity matters.

One training sees sequences of 4, 8 and 16 pairs, a third of each, and is then tested on new
sequences of each kind. Memories have two layers of `--widths`. Run it again to resume: a row for
each memory, width, seed and way of showing is appended to `rows.jsonl`, and tables and pictures are
made from all rows. `--memories` also takes the forms of AReLiT below. Source: Arora et al. (2023),
"Zoology", section 3.1; here with fewer tokens (64 keys and as many values) and shorter training.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from benchmarks.options import described
from jaxtyping import Array, Float, Int, PRNGKeyArray
from rich.progress import track

from clew.lab.costs.count import state_size
from clew.memory import MEMORIES, AbstractMemory, make_memory, options_among
from clew.memory.base import count_floats
from clew.memory.parts.blocks import Linear
from clew.names import find
from clew.report.document import Measured, Table, tabulate
from clew.report.figures import (
    COLOURS,
    new_figure,
    save,
    styles_of,
)
from clew.report.files import write_measured
from clew.run.json_lines import RowFile
from clew.run.machine import git_commit
from clew.stats.aggregates import mean_and_deviation
from clew.stats.comparisons import critical_value

WORDS, LENGTH, STEPS, RATE, SOLVED = 64, 64, 3000, 2e-3, 0.995
TOKENS = 2 * WORDS + 1
PAIRS = (4, 8, 16)
EACH = 16
"""Sequences of a batch for each number of pairs."""
ASKED = 256
"""Test sequences for each number of pairs."""
APART, TOGETHER = "apart", "together"
FORMS: dict[str, dict[str, Any]] = {
    "arelit-1": {"r": 1},
    **{f"arelit-{r}": {"r": r} for r in (3, 7, 15)},
    **{f"arelit-{r}-full": {"r": r, "frequencies": "full_wave"} for r in (3, 7, 15)},
}
"""AReLiT with other numbers of waves; with one wave it is an average, not attention."""


class Batch(NamedTuple):
    """Sequences of tokens, and the value that is due at every step; -1 where none is due."""

    tokens: Int[Array, "batch time"]
    due: Int[Array, "batch time"]


class Reader(eqx.Module):
    """A memory and a readout of values."""

    memory: AbstractMemory
    readout: Linear
    shown: str = eqx.field(static=True)

    def __call__(self, tokens: Int[Array, " time"]) -> Float[Array, "time values"]:
        """Logits of the value that is due, from the tokens as one-hots."""
        starts = jnp.zeros(len(tokens), bool).at[0].set(True)
        xs = jax.nn.one_hot(tokens, TOKENS)
        if self.shown == TOGETHER:
            before = jnp.zeros_like(xs).at[1:].set(xs[:-1])
            xs = jnp.concatenate([xs, before], axis=-1)
        return self.readout(self.memory.unroll(self.memory.init_state(), xs, starts)[1])


def draw(key: PRNGKeyArray, pairs: int, count: int) -> Batch:
    """Sequences of distinct keys, each with its own value; token 0 is the blank."""

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        of_keys, of_values, of_order, of_times = jax.random.split(key, 4)
        keys = jax.random.permutation(of_keys, WORDS)[:pairs]
        values = jax.random.randint(of_values, (pairs,), 0, WORDS)
        order = jax.random.permutation(of_order, pairs)
        times = 2 * pairs + jax.random.permutation(of_times, LENGTH - 2 * pairs)[:pairs]
        shown = jnp.stack([1 + keys, 1 + WORDS + values], axis=1).reshape(-1)
        tokens = jnp.zeros(LENGTH, jnp.int32).at[: 2 * pairs].set(shown)
        due = jnp.full(LENGTH, -1).at[times].set(values[order])
        return tokens.at[times].set(1 + keys[order]), due

    return Batch(*jax.vmap(one)(jax.random.split(key, count)))


def draw_all(key: PRNGKeyArray) -> Batch:
    """A training batch, with `EACH` sequences of every number of pairs."""
    keys = jax.random.split(key, len(PAIRS))
    drawn = [draw(of, pairs, EACH) for of, pairs in zip(keys, PAIRS, strict=True)]
    return Batch(*(jnp.concatenate(parts) for parts in zip(*drawn, strict=True)))


def loss(reader: Reader, batch: Batch) -> tuple[Array, Array]:
    """Cross entropy of the values that are due, and how many of them are answered correctly."""
    logits = jax.vmap(reader)(batch.tokens)
    asked = batch.due >= 0
    each = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(batch.due, 0))
    right = jnp.argmax(logits, axis=-1) == batch.due
    total = jnp.sum(asked)
    return jnp.sum(each * asked) / total, jnp.sum(right & asked) / total


def optimiser() -> optax.GradientTransformation:
    """Adam with a learning rate that rises and falls, the same for every memory."""
    rate = optax.warmup_cosine_decay_schedule(0.0, RATE, STEPS // 20, STEPS)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


@eqx.filter_jit
def learn(reader: Reader, moments: Any, key: PRNGKeyArray, steps: int) -> Any:
    """Several updates, and the share of right answers in each."""
    arrays, static = eqx.partition(reader, eqx.is_inexact_array)

    def update(carry: tuple[Any, Any], key: PRNGKeyArray) -> tuple[tuple[Any, Any], Array]:
        arrays, moments = carry

        def of(arrays: Any) -> tuple[Array, Array]:
            return loss(eqx.combine(arrays, static), draw_all(key))

        (_, right), slope = jax.value_and_grad(of, has_aux=True)(arrays)
        slope = jax.tree.map(jnp.conj, slope)
        steps, moments = optimiser().update(slope, moments, arrays)
        return (eqx.apply_updates(arrays, steps), moments), right

    keys = jax.random.split(key, steps)
    (arrays, moments), right = jax.lax.scan(update, (arrays, moments), keys)
    return eqx.combine(arrays, static), moments, right


@eqx.filter_jit
def ask(reader: Reader, key: PRNGKeyArray, pairs: int) -> Array:
    """The share of right answers in new sequences."""
    return loss(reader, draw(key, pairs, ASKED))[1]


def build(name: str, width: int, shown: str, keys: Sequence[PRNGKeyArray]) -> Reader:
    """A memory of this width, two layers and heads of half the width, with a readout.

    Args:
        name: of a memory or one of `FORMS`, or "module:Class".
        width: of the memory.
        shown: how keys and values are shown.
        keys: of both parts.
    """
    of, options = ("arelit", FORMS[name]) if name in FORMS else (name, {})
    kind, size = find("memory", of, MEMORIES), 2 * TOKENS if shown == TOGETHER else TOKENS
    sizes = {"hidden_size": width, "num_layers": 2, "num_heads": 2, "head_size": width // 2}
    options = options_among(kind, sizes | {"window": 64}) | options
    memory = make_memory(kind, input_size=size, key=keys[0], **options)
    return Reader(memory, Linear(memory.output_size, WORDS, key=keys[1], init="lecun"), shown)


def measure(name: str, width: int, seed: int, shown: str, blocks: int = 20) -> dict[str, Any]:
    """Trains one memory until `SOLVED` of a block is right or after `STEPS` updates; tests it."""
    began = time.perf_counter()
    key, *keys = jax.random.split(jax.random.key(seed), 3)
    reader = build(name, width, shown, keys)
    memory = reader.memory
    moments = optimiser().init(eqx.filter(reader, eqx.is_inexact_array))
    block, taken, right = STEPS // blocks, 0, np.zeros(1)
    while taken < STEPS and right.mean() < SOLVED:
        step_key = jax.random.fold_in(key, taken)
        reader, moments, right = learn(reader, moments, step_key, block)
        right, taken = np.asarray(right), taken + block
    asked = {pairs: float(ask(reader, jax.random.fold_in(key, STEPS), pairs)) for pairs in PAIRS}
    return {
        "memory": name,
        "width": width,
        "seed": seed,
        "shown": shown,
        **{f"right_{pairs}": share for pairs, share in asked.items()},
        "updates": taken,
        "state": state_size(memory).floats,
        "parameters": count_floats(eqx.filter(memory, eqx.is_inexact_array)),
        "seconds": round(time.perf_counter() - began, 1),
        "commit": git_commit(),
    }


Groups = dict[tuple[str, int], list[dict[str, Any]]]


def document(rows: Sequence[dict[str, Any]]) -> Measured:
    """The share of right answers by memory and pairs, with intervals, and against the state."""
    names = dict.fromkeys([*MEMORIES, *FORMS, *(row["memory"] for row in rows)])
    places, shown = {name: place for place, name in enumerate(names)}, dict[str, Groups]()
    for row in sorted(rows, key=lambda row: (places[row["memory"]], row["width"])):
        groups = shown.setdefault(row["shown"], {})
        groups.setdefault((row["memory"], row["width"]), []).append(row)
    tables = [_table(how, shown[how]) for how in sorted(shown)]
    pictures = {f"{how}.png": partial(_picture, shown[how]) for how in sorted(shown)}
    if len({row["width"] for row in rows if row["shown"] == TOGETHER}) > 1:
        pictures["capacity.png"] = partial(_capacity, shown[TOGETHER])
    return Measured("recall", {"rows": list(rows)}, tables, pictures=pictures)


def _table(shown: str, groups: Groups) -> Table:
    cells = [
        [
            name,
            f"{width}",
            f"{some[0]['state']:,}",
            f"{some[0]['parameters']:,}",
            *(_interval([row[f"right_{pairs}"] for row in some]) for pairs in PAIRS),
            f"{np.median([row['updates'] for row in some]):,.0f}",
            f"{len(some)}",
        ]
        for (name, width), some in groups.items()
    ]
    shown_ones = ", ".join(f"{1 / pairs + (1 - 1 / pairs) / WORDS:.2f}" for pairs in PAIRS)
    note = (
        f"Accuracy in {ASKED} new sequences of {LENGTH} tokens with each number of pairs, after at "
        f"most {STEPS:,} updates of {EACH * len(PAIRS)} sequences: mean over seeds and its 95% "
        f"interval by Student's t. Chance is {1 / WORDS:.3f}; answering with any value of the "
        f"sequence gives {shown_ones}. Updates: the median number until the accuracy over "
        f"{STEPS // 20} updates reached {SOLVED}."
    )
    asked = [f"{pairs} pairs" for pairs in PAIRS]
    columns = ["memory", "width", "state size (floats)", "parameters", *asked, "updates", "seeds"]
    title = f"Associative recall, keys and values {shown}"
    records = [row for some in groups.values() for row in some]
    return tabulate(shown, title, columns, cells, note, records=records)


def _picture(groups: Groups, path: Path) -> None:
    """One line per memory beside its state size; the best at the most pairs is on top."""
    figure = new_figure(7.2, 1.2 + 0.24 * len(groups))
    axes = figure.subplots()

    def share(some: Sequence[dict[str, Any]], pairs: int) -> list[float]:
        return [row[f"right_{pairs}"] for row in some]

    order = sorted(groups.items(), key=lambda item: np.mean(share(item[1], PAIRS[-1])))
    for pairs, colour, marker in zip(PAIRS, COLOURS, "os^", strict=False):
        for place, (_, some) in enumerate(order):
            low, mean, high = _ends(share(some, pairs))
            axes.plot([low, high], [place] * 2, color=colour, linewidth=1)
            label = f"{pairs} pairs" if place == 0 else None
            axes.plot(mean, place, marker, color=colour, markersize=5, label=label)
    widths = {width for _, width in groups}
    names = [name if len(widths) == 1 else f"{name}, {width}" for (name, width), _ in order]
    sizes = [f"{some[0]['state']:,}" for _, some in order]
    labels = [f"{name}   {size:>7}" for name, size in zip(names, sizes, strict=True)]
    axes.set_yticks(range(len(order)), labels, fontsize=8)
    axes.set(
        xlim=(-0.03, 1.03), xlabel="accuracy; beside each name, the size of its state (floats)"
    )
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", frameon=False)
    save(figure, path)


def _capacity(groups: Groups, path: Path) -> None:
    """Accuracy at the most pairs by state size: a line for a memory of several widths."""
    figure = new_figure(9, 5.6)
    axes = figure.subplots()
    curves: dict[str, list[tuple[int, float]]] = {}
    for (name, _), some in groups.items():
        right = float(np.mean([row[f"right_{PAIRS[-1]}"] for row in some]))
        curves.setdefault(name, []).append((some[0]["state"], right))
    curves = dict(sorted(curves.items(), key=lambda curve: len(curve[1]) == 1))
    for name, style in styles_of(curves).items():
        sizes, rights = zip(*curves[name], strict=True)
        look: dict[str, Any] = {"linestyle": style.dash}
        if len(sizes) == 1:
            look = {"linestyle": "none", "markerfacecolor": "none"}
        axes.plot(sizes, rights, color=style.colour, marker=style.marker, label=name, **look)
    axes.set_xscale("symlog", linthresh=100)
    axes.set(ylim=(-0.03, 1.03), xlabel="state size (floats)")
    axes.set_ylabel(f"accuracy with {PAIRS[-1]} pairs")
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    save(figure, path)


def _ends(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and the ends of its 95% interval, all equal with one seed."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    spread = mean_and_deviation(values)
    half = critical_value(0.05, len(values) - 1) * spread.deviation / len(values) ** 0.5
    return max(mean - half, 0.0), mean, min(mean + half, 1.0)


def _interval(values: Sequence[float]) -> str:
    low, mean, high = _ends(values)
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]" if len(values) > 1 else f"{mean:.2f}"


def main() -> None:
    """Trains the missing memories, then writes the table and the picture."""
    parser = described(__doc__, draws=True)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--memories", nargs="+", default=list(MEMORIES))
    parser.add_argument("--widths", nargs="+", type=int, default=[64])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="of the seeds")
    parser.add_argument("--together", action="store_true", help="a token with the one before it")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    file = RowFile(given.folder / "rows.jsonl")
    rows = file.rows
    shown = TOGETHER if given.together else APART
    done = {(row["memory"], row["width"], row["seed"], row["shown"]) for row in rows}
    seeds, names = range(given.first, given.first + given.seeds), given.memories
    wanted = [(n, w, s, shown) for s in seeds for w in given.widths for n in names]
    wanted = [] if given.redraw else wanted
    for cell in track([cell for cell in wanted if cell not in done], "trainings"):
        rows.append(measure(*cell))
        file.append(rows[-1:])
    file.close()
    write_measured(document(rows), given.folder)


if __name__ == "__main__":
    main()
