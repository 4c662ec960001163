"""Reads a request body strictly, as `google.protobuf.json_format.ParseDict` would, without protobuf. Pure.

`parse_message` returns canonical REST JSON (camelCase, enum names, int64 as strings, defaults left out, as
`MessageToDict` writes it) and every fault, in the words of Google's front end. A property-based test holds
it against ParseDict. One difference, on purpose: a field given in both spellings is refused.
"""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from deploy.local.job_service.errors import ApiError, Violation
from deploy.local.job_service.schema import ENUMS, MESSAGES, ONEOFS, SCALARS, WELL_KNOWN, camel

Json = dict[str, Any]
_RANGES = {"int32": 2**31, "int64": 2**63}
_INTEGER = re.compile(r"[+-]?\d+(?:_\d+)*")
_DURATION = re.compile(r"([+-]?\d+)(?:\.(\d*))?s")
_DURATION_LIMIT = 315_576_000_000
"""Seconds, 10,000 years: google.protobuf.Duration."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_DEPTH = 100


class _Reader:
    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def message(self, value: object, name: str, path: str) -> Json:
        if not isinstance(value, dict):
            self._invalid(path, f"type.googleapis.com/google.cloud.aiplatform.v1.{name}", value)
            return {}
        fields = MESSAGES[name]
        by_key = {key: field for field in fields for key in (field, camel(field))}
        read: Json = {}
        seen: dict[str, str] = {}
        for key, item in value.items():
            field = by_key.get(key)
            if field is None:
                self._fault(
                    path, f"Invalid JSON payload received. Unknown name {_quoted(key)} at '{path}': Cannot find field."
                )
            elif field in seen:
                self._fault(
                    path, f"Invalid JSON payload received. Field {seen[field]!r} is given again as {key!r} at '{path}'."
                )
            else:
                seen[field] = key
                self._field(read, name, field, item, f"{path}.{field}")
        return read

    def _field(self, read: Json, message: str, field: str, value: object, path: str) -> None:
        if value is None:
            return
        for oneof, members in ONEOFS.get(message, {}).items():
            if field in members and any(camel(other) in read for other in members if other != field):
                self._fault(
                    path,
                    f"Invalid value at '{path}' (oneof), oneof field '{oneof}' is already set. "
                    f"Cannot set '{camel(field)}'",
                )
                return
        parsed = self.value(value, MESSAGES[message][field], path)
        kind = MESSAGES[message][field]
        if parsed not in (None, "", 0, [], "0", {}) or kind in MESSAGES or kind == "Duration":
            read[camel(field)] = parsed

    def value(self, value: object, kind: str, path: str) -> Any:
        """`value` as canonical JSON; after a fault the result means nothing."""
        if kind.startswith("[]"):
            return self._list(value, kind[2:], path)
        if kind == "{}":
            return self._map(value, path)
        if kind in ENUMS:
            return self._enum(value, kind, path)
        if kind == "Duration":
            return self._duration(value, path)
        if kind in WELL_KNOWN:
            return value
        if kind in SCALARS:
            return self._SCALARS[kind](self, value, kind, path)
        return self.message(value, kind, path)

    def _list(self, value: object, kind: str, path: str) -> list[Any]:
        if not isinstance(value, list):
            self._fault(path, f"Invalid value at '{path}', {_quoted(value)}: a repeated field must be a list.")
            return []
        for index, item in enumerate(value):
            if item is None:
                self._fault(f"{path}[{index}]", f"Invalid value at '{path}[{index}]': null is not allowed in a list.")
        items = enumerate(value)
        return [_zero(kind, self.value(item, kind, f"{path}[{index}]")) for index, item in items if item is not None]

    def _map(self, value: object, path: str) -> Json:
        if not isinstance(value, dict):
            self._fault(path, f"Invalid value at '{path}' (Map), Cannot bind a {type(value).__name__} to a map field.")
            return {}
        return {key: self._string(item, "string", f"{path}[{key}]") for key, item in sorted(value.items())}

    def _string(self, value: object, kind: str, path: str) -> str:
        if not isinstance(value, str) or _SURROGATE.search(value):
            self._invalid(path, SCALARS[kind], value)
            return ""
        return value

    def _bool(self, value: object, kind: str, path: str) -> bool:
        if not isinstance(value, bool):
            self._invalid(path, SCALARS[kind], value)
        return value is True

    def _integer(self, value: object, kind: str, path: str) -> int | str:
        number = _whole(value)
        if number is None or not -_RANGES[kind] <= number < _RANGES[kind]:
            self._invalid(path, SCALARS[kind], value)
            return 0
        return str(number) if kind == "int64" else number

    def _enum(self, value: object, kind: str, path: str) -> str | int:
        names = ENUMS[kind]
        if isinstance(value, str) and value in names:
            return value if names[value] else 0
        number = _enum_number(value)
        if number is None or not -(2**31) <= number < 2**31:
            self._invalid(path, f"type.googleapis.com/google.cloud.aiplatform.v1.{kind}", value)
            return 0
        return next((name for name, known in names.items() if known == number and number), number)

    def _duration(self, value: object, path: str) -> str:
        kind = "type.googleapis.com/google.protobuf.Duration"
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            leaf = camel(path.rpartition(".")[2])
            self._fault(
                path,
                f"Invalid value at '{path}' ({kind}), "
                f"Field '{leaf}', Illegal duration format; duration must end with 's'",
            )
            return ""
        seconds, nanos = int(match[1]), _nanos(match[2] or "")
        if abs(seconds) > _DURATION_LIMIT or nanos >= 10**9:
            self._invalid(path, kind, value)
        return _duration_text(seconds, nanos, negative=match[1].startswith("-"))

    _SCALARS: Mapping[str, Callable[["_Reader", object, str, str], Any]] = {
        "string": _string, "bool": _bool, "int32": _integer, "int64": _integer,
    }  # fmt: skip

    def _invalid(self, path: str, kind: str, value: object) -> None:
        self._fault(path, f"Invalid value at '{path}' ({kind}), {_quoted(value)}")

    def _fault(self, path: str, message: str) -> None:
        self.violations.append(Violation(path, message))


def parse_message(value: object, name: str, path: str) -> tuple[Json, list[Violation]]:
    """The message `name` as canonical JSON, and what is wrong with it; `path` is what faults begin with."""
    reader = _Reader()
    read = reader.message(value, name, path)
    return read, reader.violations


def parse_body(body: bytes) -> object:
    """The JSON of a request body. Raises ApiError (400) for what is not strict JSON."""
    try:
        parsed = json.loads(body.decode() or "{}", parse_constant=_no_constant)
        if _depth(parsed) > _MAX_DEPTH:
            raise ValueError(f"Message too deep. Max recursion depth reached for key, {_MAX_DEPTH} levels")
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"Invalid JSON payload received. {str(error)[:200]}") from None
    return parsed


def _no_constant(name: str) -> object:
    raise ValueError(f"Unexpected token {name}")


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level and depth <= _MAX_DEPTH:
        depth += 1
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth


def _whole(value: object) -> int | None:
    """The integer that `value` stands for: 3, 3.0, "3", "3.0"; None for anything else, booleans too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and (" " in value or len(value) > 400):
        return None
    try:
        return int(value) if not isinstance(value, float) or value.is_integer() else None
    except (ValueError, OverflowError):
        try:
            number = float(value)
            return int(number) if number.is_integer() else None
        except (ValueError, OverflowError):
            return None


def _enum_number(value: object) -> int | None:
    if not isinstance(value, int | float | str) or (isinstance(value, str) and len(value) > 400):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _nanos(digits: str) -> int:
    try:
        return round(Decimal(f"0.{digits or 0}") * 10**9)
    except InvalidOperation:
        return 10**9


def _duration_text(seconds: int, nanos: int, *, negative: bool) -> str:
    sign = "-" if negative and (seconds or nanos) else ""
    fraction = f"{nanos:09d}"
    for digits in (3, 6):
        if not int(fraction[digits:]):
            fraction = fraction[:digits]
            break
    return f"{sign}{abs(seconds)}" + (f".{fraction}" if nanos else "") + "s"


def _zero(kind: str, parsed: Any) -> Any:
    """A list keeps its zeros, which a field leaves out; enums are written by name there."""
    return next(iter(ENUMS[kind])) if kind in ENUMS and parsed == 0 else parsed


def _quoted(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:200] + "…"
