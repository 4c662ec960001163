"""Curves and timelines as SVG shapes. Pure: numbers in, coordinates out; templates and CSS draw them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kickoff.progress import Epoch
from kickoff.runs import Change, Run, State

WIDTH, HEIGHT = 520, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 26


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    css: str
    points: str
    """``x,y x,y …`` for an SVG polyline."""
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
    """Loss and accuracy over epochs, training and validation each; a metric that nobody reported is left out."""
    charts = []
    for title, names in (("Loss", ("loss", "val_loss")), ("Accuracy", ("accuracy", "val_accuracy"))):
        found = {name: _values(epochs, name) for name in names}
        if any(found.values()):
            charts.append(_chart(title, found, epochs[-1].epochs))
    return charts


def _values(epochs: Sequence[Epoch], name: str) -> list[tuple[int, float]]:
    return [(epoch.epoch, value) for epoch in epochs if (value := epoch.metrics.get(name)) is not None]


def _chart(title: str, found: dict[str, list[tuple[int, float]]], last: int) -> Chart:
    values = [value for points in found.values() for _, value in points]
    low, high = (0.0, 1.0) if title == "Accuracy" else (0.0, max(values) or 1.0)

    def place(epoch: int, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (epoch - 1) / max(last - 1, 1)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))
        return round(x, 1), round(y, 1)

    series = [
        Series(
            name="validation" if name.startswith("val_") else "training",
            css="val" if name.startswith("val_") else "train",
            points=" ".join(f"{x},{y}" for x, y in (place(*point) for point in points)),
            last=place(*points[-1]),
            value=points[-1][1],
        )
        for name, points in found.items()
        if points
    ]
    steps = (low, (low + high) / 2, high)
    y_ticks = tuple((place(1, step)[1], f"{step:.2g}") for step in steps)
    x_ticks = tuple((place(epoch, low)[0], str(epoch)) for epoch in sorted({1, (last + 1) // 2, last}))
    return Chart(title, tuple(series), y_ticks, x_ticks)


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
