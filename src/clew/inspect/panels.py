"""The panels of an inspection, each drawn into its own axes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from clew.inspect.inspection import Inspection
from clew.inspect.lengths import shares
from clew.report.document import Panel
from clew.report.figures import COLOURS

BLUE, ORANGE, GREEN = COLOURS[:3]
SHADES = LinearSegmentedColormap.from_list("clew", ["#ffffff", "#9ecae1", "#2171b5", "#08306b"])
MOST_MAPS = 8
WAYS = {"gradient": BLUE, "occlusion": ORANGE}


def panels(found: Inspection) -> list[Panel]:
    """All panels of an agent, in reading order."""
    pictures = [
        Panel("What the decision rests on", partial(draw_lags, found)),
        Panel("How far back it goes, summed up", partial(draw_summed, found)),
        Panel("What can be read from the memory", partial(draw_probes, found)),
        Panel("Influence on every decision, by gradient", partial(draw_map, found, "gradient")),
        Panel("... and by occlusion", partial(draw_map, found, "occlusion")),
    ]
    if any(traced.kind != "attention" for traced in found.maps.values()):
        pictures.append(Panel("Gates over one episode, means over units", partial(_gates, found)))
    maps: list[Panel] = []
    for name, traced in found.maps.items():
        if traced.pairs is not None:
            title = name if traced.kind == "attention" else f"{name}, what is left"
            maps.append(Panel(title, partial(_pairs, traced.pairs)))
    return pictures + maps[:MOST_MAPS]


def compared(several: Sequence[Inspection]) -> list[Panel]:
    """Several agents in the same panels, one line each."""
    return [
        Panel("What the decision rests on (gradient)", partial(_compare_lags, several, "gradient")),
        Panel("... and by occlusion", partial(_compare_lags, several, "occlusion")),
        Panel("Read from the state", partial(_compare_probes, several, "state")),
        Panel("Read from the output", partial(_compare_probes, several, "output")),
    ]


def draw_lags(found: Inspection, axes: Axes) -> None:
    """Each past observation's share of the influence on the decision, by lag."""
    for way, colour in WAYS.items():
        lags = shares(found.lags(way, "policy"))
        if np.isnan(lags).all():
            continue
        low, high = np.nanquantile(lags, (0.25, 0.75), axis=0)
        axes.fill_between(range(len(low)), low, high, color=colour, alpha=0.2, linewidth=0)
        _line(axes, np.nanmean(lags, axis=0), colour, way)
    _lag_axis(axes, found.decisions.max())
    _mark_first(axes, found)
    axes.set_ylabel("share of the influence")
    _legend(axes, "upper center")


def draw_summed(found: Inspection, axes: Axes) -> None:
    """The cumulative share of the influence by lag; it reaches 90% at the memory length."""
    share = found.questions.share
    axes.axhline(share, color="0.55", linewidth=0.9, linestyle=(0, (4, 3)))
    lines = [("gradient", "policy", BLUE), ("occlusion", "policy", ORANGE)]
    for way, measure, colour in [*lines, ("gradient", "value", GREEN)]:
        lags = shares(found.lags(way, measure))
        if np.isnan(lags).all():
            continue
        middle = found.memory_lengths[way, measure].quartiles[1]
        what = f"{measure}, {way}"
        mean = np.cumsum(np.nanmean(lags, axis=0))
        axes.plot(mean, color=colour, linewidth=1.8, label=f"{what}: {middle:.0f} steps")
        low, _, high = found.memory_lengths[way, measure].quartiles
        axes.plot([low, high], [share, share], color=colour, linewidth=3, alpha=0.4)
        axes.plot([middle], [share], marker="o", color=colour, markersize=5)
    _lag_axis(axes, found.decisions.max())
    axes.set_ylim(0, 1.03)
    axes.set_ylabel("share reached")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    _legend(axes, "lower left")


def draw_probes(found: Inspection, axes: Axes) -> None:
    """Accuracy of linear probes of the first label from state and output, step by step."""
    if not found.probes:
        axes.text(0.5, 0.5, "nothing to probe", ha="center", transform=axes.transAxes)
        return
    for colour, probe in zip((BLUE, ORANGE), found.probes[:2], strict=False):
        _probe_line(axes, probe, colour, f"{probe.label} from the {probe.source}", band=True)
    others = [probe for probe in found.probes[2:] if probe.source == "state"]
    for colour, probe in zip(COLOURS[2:], others, strict=False):
        _probe_line(axes, probe, colour, f"{probe.label} from the state")
    _majority(axes, found)
    axes.set_ylabel("held-out accuracy")
    _legend(axes, "best")


def draw_map(found: Inspection, way: str, axes: Axes) -> None:
    """The influence of every past step on decisions, each row as shares of its sum."""
    rows = getattr(found, f"{way}_map").policy
    steps = found.map_steps
    half = (steps[1] - steps[0]) / 2 if len(steps) > 1 else 0.5
    extent = (-0.5, rows.shape[1] - 0.5, steps[-1] + half, steps[0] - half)
    _image(axes, shares(rows), extent, "decision at step", "share of its influence")


def _pairs(values: Float[np.ndarray, "time time"], axes: Axes) -> None:
    time = len(values)
    lower = np.where(np.tril(np.ones((time, time))) > 0, values, np.nan)
    _image(axes, lower, (-0.5, time - 0.5, time - 0.5, -0.5), "at step", "")


def _image(axes: Axes, values: Any, extent: Any, label: str, scale: str) -> None:
    finite = values[np.isfinite(values)]
    # The largest few are clipped, so that a single dominant step does not hide the rest.
    top = max(1e-12, float(np.quantile(finite, 0.995))) if finite.size else 1.0
    picture = axes.imshow(
        values, extent=extent, aspect="auto", cmap=SHADES, vmin=0.0, vmax=top,
        interpolation="nearest",
    )  # fmt: skip
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.02, fraction=0.06)  # pyright: ignore[reportAttributeAccessIssue]
    bar.ax.tick_params(labelsize=7)
    if scale:
        bar.set_label(scale, fontsize=7)
    axes.set_xlabel("past step")
    axes.set_ylabel(label)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))


def _gates(found: Inspection, axes: Axes) -> None:
    styles = ["-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (6, 1, 1, 1))]
    shown = [(n, t) for n, t in found.maps.items() if t.kind != "attention"]
    kinds = list(dict.fromkeys(name.rpartition(": ")[2] for name, _ in shown))
    layers = list(dict.fromkeys(name.rpartition(": ")[0] for name, _ in shown))
    for name, traced in shown:
        layer, _, kind = name.rpartition(": ")
        axes.plot(
            traced.mean, linewidth=1.4, label=name,
            color=COLOURS[kinds.index(kind) % len(COLOURS)],
            linestyle=styles[layers.index(layer) % len(styles)],
        )  # fmt: skip
    axes.set_xlabel("step")
    axes.set_ylabel("mean over units")
    named = len(shown) <= 12
    if all(traced.mean.max() <= 1 for _, traced in shown):
        rows = (len(shown) + 1) // 2 if named else 0
        axes.set_ylim(-0.03, 1.03 + 0.13 * rows)  # the legend is above the lines
        axes.set_yticks(np.arange(6) / 5)
    if named:
        _legend(axes, "upper center", columns=2)


def _compare_lags(several: Sequence[Inspection], way: str, axes: Axes) -> None:
    for found, colour in zip(several, COLOURS, strict=False):
        lags = shares(found.lags(way, "policy"))
        if not np.isnan(lags).all():
            _line(axes, np.nanmean(lags, axis=0), colour, found.name)
    _lag_axis(axes, max(found.decisions.max() for found in several))
    axes.set_ylabel("share of the influence")
    _legend(axes, "upper center")


def _compare_probes(several: Sequence[Inspection], source: str, axes: Axes) -> None:
    for found, colour in zip(several, COLOURS, strict=False):
        probe = next((p for p in found.probes if p.source == source), None)
        if probe is not None:
            _probe_line(axes, probe, colour, found.name)
    _majority(axes, several[0])
    labels = {found.probes[0].label for found in several if found.probes}
    axes.set_ylabel(f"{' / '.join(sorted(labels))}: held-out accuracy")
    _legend(axes, "lower left")


def _probe_line(axes: Axes, probe: Any, colour: str, label: str, band: bool = False) -> None:
    if not probe.steps:
        return
    means, low, high = (np.array(column) for column in zip(*probe.accuracy, strict=True))
    if band:
        axes.fill_between(probe.steps, low, high, color=colour, alpha=0.2, linewidth=0)
    _line(axes, means, colour, label, at=probe.steps)


def _majority(axes: Axes, found: Inspection) -> None:
    if found.probes and found.probes[0].steps:
        probe = found.probes[0]
        faint: dict[str, Any] = dict(color="0.4", linestyle=(0, (4, 3)), linewidth=1.1)
        axes.plot(probe.steps, probe.majority, label="most common class", **faint)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("step of the episode")


def _line(axes: Axes, values: Any, colour: str, label: str, at: Any = None) -> None:
    steps = np.arange(len(values)) if at is None else at
    marker = "o" if len(values) <= 40 else None
    axes.plot(steps, values, color=colour, label=label, marker=marker, markersize=3, linewidth=1.8)


def _mark_first(axes: Axes, found: Inspection) -> None:
    lag = float(np.median(found.decisions))
    axes.axvline(lag, color="0.6", linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)
    axes.annotate(
        "first observation", (lag, 0.97), xycoords=("data", "axes fraction"), rotation=90,
        xytext=(3, 0), textcoords="offset points", fontsize=7, color="0.45", va="top",
    )  # fmt: skip


def _lag_axis(axes: Axes, longest: int) -> None:
    """Puts the decision on the right and the past on the left, in the order of time."""
    axes.set_xlim(longest + 0.5, -0.5)
    axes.set_xlabel("steps before the decision")


def _legend(axes: Axes, place: Any, columns: int = 1) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc=place, frameon=False, fontsize=7.5, ncols=columns)
