"""Curves and timelines as SVG shapes. Pure: numbers in, coordinates out; templates and CSS draw them."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from kickoff.progress import Epoch
from kickoff.runs import Change, Run, State

WIDTH, HEIGHT = 520, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 26


_POINTS = 250
"""Of one line: about one for two pixels. More are thinned out, the last one always stays."""
_MOST = 6

Points = list[tuple[int, float | None]]


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    css: str
    lines: tuple[str, ...]
    """``x,y x,y …`` for SVG polylines: more than one where an epoch reported no finite number."""
    last: tuple[float, float]
    value: float


@dataclass(frozen=True)
class Chart:
    title: str
    series: tuple[Series, ...]
    y_ticks: tuple[tuple[float, str], ...]
    """(y, text)."""
    x_ticks: tuple[tuple[float, str], ...]


def build_charts(epochs: Sequence[Epoch]) -> list[Chart]:
    """A chart for each metric over epochs, training and validation in one; loss first, then accuracy, six at most."""
    names = {name.removeprefix("val_") for epoch in epochs for name in epoch.metrics}
    first = [name for name in ("loss", "accuracy") if name in names]
    charts = []
    for name in [*first, *sorted(names.difference(first))][:_MOST]:
        found = {key: _values(epochs, key) for key in (name, f"val_{name}")}
        if any(value is not None for points in found.values() for _, value in points):
            charts.append(_chart(name, found, max(epochs[-1].epochs, epochs[-1].epoch)))
    return charts


def _values(epochs: Sequence[Epoch], name: str) -> Points:
    points = [(epoch.epoch, epoch.metrics[name]) for epoch in epochs if name in epoch.metrics]
    step = math.ceil(len(points) / _POINTS)
    return [point for index, point in enumerate(points, 1) if index % step == 1 % step or index == len(points)]


def _chart(name: str, found: dict[str, Points], last: int) -> Chart:
    values = [value for points in found.values() for _, value in points if value is not None]
    low, high = _range(name, values)

    def place(epoch: int, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (epoch - 1) / max(last - 1, 1)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))
        return round(x, 1), round(y, 1)

    series = []
    for key, points in found.items():
        finite = [(epoch, value) for epoch, value in points if value is not None]
        if finite:
            kind = ("validation", "val") if key.startswith("val_") else ("training", "train")
            series.append(Series(*kind, tuple(_lines(points, place)), place(*finite[-1]), finite[-1][1]))
    y_ticks = tuple((place(1, step)[1], f"{step:.2g}") for step in (low, (low + high) / 2, high))
    x_ticks = tuple((place(epoch, low)[0], str(epoch)) for epoch in sorted({1, (last + 1) // 2, last}))
    return Chart(name.replace("_", " ").capitalize(), tuple(series), y_ticks, x_ticks)


def _range(name: str, values: Sequence[float]) -> tuple[float, float]:
    """From 0 where it can be, so that curves of two runs compare at a glance; shares from 0 to 1."""
    if "loss" not in name and all(0 <= value <= 1 for value in values):
        return 0.0, 1.0
    low, high = min(0.0, *values), max(0.0, *values)
    return low, high if high > low else low + 1.0


def _lines(points: Points, place: Callable[[int, float], tuple[float, float]]) -> Iterator[str]:
    """The stretches between epochs without a finite number; a lone point is drawn as a dot."""
    for finite, stretch in groupby(points, lambda point: point[1] is not None):
        if finite:
            places = [place(epoch, value) for epoch, value in stretch if value is not None]
            yield " ".join(f"{x},{y}" for x, y in (places if len(places) > 1 else places * 2))


@dataclass(frozen=True)
class Phase:
    """A part of a run's life, as a bar."""

    name: str
    css: str
    x: float
    """Per cent of the whole."""
    width: float
    seconds: float


_PHASES = {
    State.HELD: ("held", "held"),
    State.QUEUED: ("queued", "queued"),
    State.SUBMITTING: ("provisioning", "provisioning"),
    State.SUBMITTED: ("provisioning", "provisioning"),
    State.RUNNING: ("running", "running"),
}
_NARROWEST = 1.5


def build_timeline(run: Run, now: datetime) -> list[Phase]:
    """Held, queued, provisioning, running: how long each took, the last one until now or the end."""
    merged: list[tuple[str, str, float]] = []
    for change, following in zip(run.history, [*run.history[1:], None], strict=True):
        if change.state not in _PHASES:
            continue
        name, css = _PHASES[change.state]
        seconds = max(0.0, (_end(change, following, now) - change.time).total_seconds())
        if merged and merged[-1][0] == name:
            merged[-1] = (name, css, merged[-1][2] + seconds)
        else:
            merged.append((name, css, seconds))
    total = sum(seconds for _, _, seconds in merged) or 1.0
    widths = [max(_NARROWEST, 100 * seconds / total) for _, _, seconds in merged]
    scale = 100 / (sum(widths) or 1)
    phases, x = [], 0.0
    for (name, css, seconds), width in zip(merged, widths, strict=True):
        phases.append(Phase(name, css, round(x, 2), round(width * scale, 2), seconds))
        x += width * scale
    return phases


def _end(change: Change, following: Change | None, now: datetime) -> datetime:
    return following.time if following else max(now, change.time)
