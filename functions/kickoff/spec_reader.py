"""A strict reader of the API's messages in either spelling. Pure.

It does what protobuf's JSON parser does, and says what is wrong instead of stopping at the first fault. What it returns
is REST JSON: camelCase, enum names, ints as ints, durations as ``<n>s``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kickoff.errors import Fault
from kickoff.faults import MAX_FAULTS, KeyPath, fault, nearest, shown, unknown_key
from kickoff.spec_fields import ENUMS, MESSAGES, OUTPUT_ONLY, snake
from kickoff.templates import left_over_name

_HINTS = {
    "env": "write a list: [{name: NAME, value: text}]",
    "GcsDestination": "write {output_uri_prefix: gs://bucket/prefix}",
    "EnvVar": "write {name: NAME, value: text}",
}

_COMMON = frozenset({"name", "value", "key", "values", "path", "server", "domain", "models"})
"""Field names that say too little for a hint where they belong."""

_HOMES: dict[str, list[str]] = {}
"""Field, in either spelling -> the messages that have it."""
for _message, _fields in MESSAGES.items():
    for _name in {spelling for each in _fields for spelling in (each, snake(each))}:
        _HOMES.setdefault(_name, []).append(_message)

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_SECONDS = re.compile(r"([0-9]{1,12})s", re.ASCII)


@dataclass
class Reader:
    """Reads one message; collects faults and which spellings it met.

    With `folding`, a lone value where a list belongs becomes a list of one, as ``gcloud --config`` does it.
    """

    folding: bool = False
    faults: list[Fault] = field(default_factory=list)
    camel: list[str] = field(default_factory=list)
    snake: list[str] = field(default_factory=list)

    def message(self, kind: str, value: object, path: KeyPath) -> dict[str, Any]:
        """A message as REST JSON. Fields that are null are absent, as in protobuf's JSON."""
        if not isinstance(value, Mapping):
            hint = f"; {_HINTS[kind]}" if kind in _HINTS else ""
            self._add(path, f"is {shown(value)}; it must be an object{hint}")
            return {}
        fields = MESSAGES[kind]
        out: dict[str, Any] = {}
        for key, item in value.items():
            name = self._name(kind, fields, str(key), path)
            if not name:
                continue
            if name in out:
                self._add(path, f"has {_pair(value, name)}: the same field twice")
            elif item is not None:
                out[name] = self._field(fields[name], item, (*path, str(key)), name)
        return {name: item for name, item in out.items() if item is not None}

    def _name(self, kind: str, fields: Mapping[str, str], key: str, path: KeyPath) -> str:
        if key in fields:
            if key != snake(key):
                self.camel.append(key)
            return key
        for name in fields:
            if snake(name) == key:
                self.snake.append(key)
                return name
        if kind == "CustomJob" and key in OUTPUT_ONLY | {snake(name) for name in OUTPUT_ONLY}:
            self._add((*path, key), "is set by Vertex AI alone; leave it out")
        else:
            choices = fields if self.camel and not self.snake else [snake(name) for name in fields]
            self.faults.append(
                _misplaced(kind, key, path) or unknown_key((*path, key), choices, before=len(self.faults))
            )
        return ""

    def _field(self, kind: str, value: object, path: KeyPath, name: str) -> Any:
        if not kind.endswith("[]"):
            return self._single(kind, value, path)
        if self.folding and not isinstance(value, list):
            value = [value]
        if not isinstance(value, list):
            hint = f"; {_HINTS[name]}" if name in _HINTS else ""
            self._add(path, f"is {shown(value)}; it must be a list{_of(kind)}{hint}")
            return None
        # What cannot be read keeps its place, so that the faults of its neighbours name the right index.
        instead: Any = {} if kind[:-2] in MESSAGES else ""
        items = []
        for index, item in enumerate(value):
            if item is None:
                skip = "; use {} to skip a pool" if name == "workerPoolSpecs" else ""
                self._add((*path, index), f"is null; it must be {_one(kind)}{skip}")
            read = None if item is None else self._single(kind[:-2], item, (*path, index))
            items.append(instead if read is None else read)
        return items

    def _single(self, kind: str, value: object, path: KeyPath) -> Any:
        if kind in MESSAGES:
            return self.message(kind, value, path)
        if kind in ENUMS:
            return self._enum(ENUMS[kind], value, path)
        if kind == "map":
            return self._map(value, path)
        if kind == "duration":
            return self._duration(value, path)
        if kind.startswith("int"):
            return self._integer(int(kind[3:]), value, path)
        expected = bool if kind == "bool" else str
        if isinstance(value, expected):
            return value
        self._add(path, f"is {shown(value)}; it must be {'true or false' if kind == 'bool' else 'a string'}")
        return None

    def _integer(self, bits: int, value: object, path: KeyPath) -> int | None:
        number = _whole(value)
        if number is None or abs(number) >= 2 ** (bits - 1):
            still = f"; {value} is a placeholder" if isinstance(value, str) and left_over_name(value) else ""
            self._add(path, f"is {shown(value)}; it must be a whole number of {bits} bits{still}")
            return None
        return number

    def _enum(self, names: Mapping[str, int], value: object, path: KeyPath) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool):
            for name, number in names.items():
                if number == value:
                    return name if number else None
        if isinstance(value, str) and value in names:
            return value if names[value] else None
        allowed = [name for name, number in names.items() if number]
        close = nearest(value, allowed) if len(self.faults) < MAX_FAULTS else ""
        limit = f"one of {', '.join(allowed)}" if len(allowed) <= 8 or not close else "a name of the API's enum"
        self._add(path, f"is {shown(value)}; it must be {limit}{close}")
        return None

    def _map(self, value: object, path: KeyPath) -> dict[str, str] | None:
        if not isinstance(value, Mapping):
            self._add(path, f"is {shown(value)}; it must be an object of strings")
            return None
        for key, item in value.items():
            if not isinstance(item, str):
                self._add((*path, str(key)), f"is {shown(item)}; it must be a string")
        return {str(key): item for key, item in value.items() if isinstance(item, str)}

    def _duration(self, value: object, path: KeyPath) -> str | None:
        if isinstance(value, Mapping) and "seconds" in value and value.keys() <= {"seconds", "nanos"}:
            value = None if value.get("nanos") else _whole(value["seconds"])
        if isinstance(value, str) and (match := _SECONDS.fullmatch(value)):
            return f"{int(match[1])}s"
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return f"{value}s"
        self._add(path, f"is {shown(value)}; it must be whole seconds from 0 up, such as 3600s")
        return None

    def _add(self, path: KeyPath, rest: str) -> None:
        self.faults.append(fault(path, rest))


def _pair(value: Mapping[str, object], name: str) -> str:
    return " and ".join(str(key) for key in value if key in (name, snake(name)))


def _misplaced(kind: str, key: str, path: KeyPath) -> Fault | None:
    """A field of another message: `env` on a pool, `serviceAccount` on a container."""
    if key in _COMMON:
        return None
    homes = _HOMES.get(key, [])
    if not homes or kind in homes:
        return None
    return fault((*path, key), f"is a field of {' and '.join(homes)}, not of {kind}; move it there")


def _of(kind: str) -> str:
    return " of strings" if kind == "string[]" else ""


def _one(kind: str) -> str:
    return "a string" if kind == "string[]" else "an object"


def _whole(value: object) -> int | None:
    """As protobuf's JSON reads integers: numbers without a fraction, and decimal strings."""
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return None
    return int(value)
