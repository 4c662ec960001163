"""The types of recipes' fields: durations, globs, schedules, accelerators. Pure."""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from kickoff.cron import cron_fault, timezone_fault
from kickoff.faults import nearest, shown
from kickoff.globs import glob_fault
from kickoff.machines import ACCELERATORS

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)", re.ASCII)


class Section(BaseModel):
    """Immutable, no unknown keys, no conversions: `"3"` is not a number here."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


def parse_duration(value: object) -> int:
    """``2h``, ``90s``, ``7d`` or a number of seconds -> seconds. Raises ValueError."""
    match = _DURATION.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if not match:
        raise ValueError(f"is {shown(value)}; it must be a whole number and s, m, h or d, such as 90s or 2h")
    return int(match[1]) * _UNITS[match[2] or "s"]


Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": "^[0-9]{1,9}[smhd]?$"}, {"type": "integer", "minimum": 0}]}
    ),
]
"""Seconds."""


def _text(check: Callable[[str], str]) -> Callable[[object], object]:
    """A check of a string; what is no string is left to the field's type."""

    def checked(value: object) -> object:
        if isinstance(value, str) and (problem := check(value)):
            raise ValueError(problem)
        return value

    return checked


def _accelerator(value: object) -> object:
    if isinstance(value, str) and (value not in ACCELERATORS or not ACCELERATORS[value]):
        raise ValueError(f"is {shown(value)}, which is not an accelerator{nearest(value, list(ACCELERATORS)[1:])}")
    return value


AcceleratorName = Annotated[
    str, BeforeValidator(_accelerator), WithJsonSchema({"type": "string", "enum": list(ACCELERATORS)[1:]})
]

Glob = Annotated[str, BeforeValidator(_text(glob_fault))]
Cron = Annotated[str, BeforeValidator(_text(cron_fault))]
Zone = Annotated[str, BeforeValidator(_text(timezone_fault))]
