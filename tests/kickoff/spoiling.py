"""Spoils JSON values at random places: what untrusted and mistyped input looks like."""

from copy import deepcopy
from random import Random
from typing import Any

JUNK: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**70, "", "x", "{x}", "{run_id}", "0", "gs://", "gs://b/{run_id}", "1h", "*", "{a"),
    *([], {}, [None], [[]], [1, "a"], {"a": 1}, {"a": None}, {"": ""}, {"seconds": "x"}, {"seconds": 5, "nanos": None}),
]
"""Plain values that YAML and JSON can both hold."""

UNSENDABLE: list[Any] = ["\ud800", "\0", float("nan")]

NAMES = (
    *("args", "env", "labels", "command", "recipe", "jobSpec", "containerSpec", "pythonPackageSpec", "region", "ps"),
    *("evaluators", "reduction_servers", "disk", "schedule", "upload", "dataset", "output", "network", "paused"),
)


def spoil(value: Any, random: Random, junk: list[Any]) -> Any:
    """`value` with something else at one place, or something added there."""
    places: list[tuple[Any, Any]] = []

    def visit(inner: Any) -> None:
        for key in inner if isinstance(inner, dict) else range(len(inner)):
            places.append((inner, key))
            if isinstance(inner[key], dict | list):
                visit(inner[key])

    visit(value)
    holder, key = random.choice(places)
    if isinstance(holder, dict) and random.random() < 0.3:
        key = random.choice(NAMES)
    holder[key] = deepcopy(random.choice(junk))
    return value
