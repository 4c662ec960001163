"""``entries:list`` of Cloud Logging, as far as `gcloud ai custom-jobs stream-logs` and log views use it.

https://cloud.google.com/logging/docs/view/logging-query-language: comparisons of a path with a value, AND, OR,
NOT and parentheses; a comparison beside another means AND; AND binds tighter than OR.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from deploy.local.job_service.errors import ApiError
from deploy.local.job_service.logs import Logs

Json = dict[str, Any]
Test = Callable[[Mapping[str, Any]], bool]
_TOKEN = re.compile(r'\s*(?P<token>"(?:\\.|[^"\\])*"|<=|>=|!=|=~|[=<>:()]|[^\s=<>:()!"]+)')
_SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    ":": lambda a, b: str(b).lower() in str(a).lower(),
}
_JOB = re.compile(r'resource\.labels\."?job_id"?\s*=\s*"?(\d{1,19})"?')
_PAGE_SIZE = 1000


def list_entries(logs: Logs, body: object) -> Json:
    """One page of entries of the jobs that the filter names with ``resource.labels.job_id="N"``.

    Raises ApiError (400). A filter that names no job finds nothing: the emulator keeps logs by job.
    """
    fields = body if isinstance(body, dict) else {}
    text, order, token = (str(fields.get(name) or "") for name in ("filter", "orderBy", "pageToken"))
    size = fields.get("pageSize") or _PAGE_SIZE
    if not isinstance(size, int) or not 0 < size <= 1000 or not re.fullmatch(r"\d{0,9}", token, re.ASCII):
        raise ApiError(400, "page_size must be from 1 to 1000, and page_token one that this method gave")
    test = parse_query(text)
    jobs = list(dict.fromkeys(_JOB.findall(text)))
    if len(jobs) == 1 and not order.endswith(" desc"):
        return _read_on(logs, jobs[0], test, int(token or 0), size)
    found = [entry for job in jobs for entry in logs.entries(job) if test(entry)]
    found.sort(key=lambda entry: (entry["timestamp"], entry["insertId"]), reverse=order.endswith(" desc"))
    start = int(token or 0)
    return _page(found[start : start + size], str(start + size) if start + size < len(found) else "")


def _read_on(logs: Logs, job: str, test: Test, offset: int, size: int) -> Json:
    """A page of one job's entries in order: it begins where the last one ended, and reads no further than it must."""
    page: list[Json] = []
    try:
        for after, entry in logs.entries_from(job, offset):
            if test(entry):
                if len(page) == size:
                    return _page(page, str(offset))
                page.append(entry)
            offset = after
    except ValueError:
        raise ApiError(400, "page_token is not one that this method gave") from None
    return _page(page, "")


def _page(entries: list[Json], token: str) -> Json:
    return ({"entries": entries} if entries else {}) | ({"nextPageToken": token} if token else {})


def parse_query(text: str) -> Test:
    """The filter as a test of one entry. Raises ApiError (400)."""
    tokens: list[str] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > 500:
            raise ApiError(400, f"Unparseable filter: {text[position : position + 60]!r}")
        tokens.append(match["token"])
        position = match.end()
    if not tokens:
        return lambda entry: True
    test = _any(tokens, 0)
    if tokens:
        raise ApiError(400, f"Unparseable filter: unexpected {tokens[0]!r}")
    return test


def _any(tokens: list[str], depth: int) -> Test:
    tests = [_all(tokens, depth)]
    while tokens[:1] == ["OR"]:
        tokens.pop(0)
        tests.append(_all(tokens, depth))
    return lambda entry: any(test(entry) for test in tests)


def _all(tokens: list[str], depth: int) -> Test:
    tests = [_one(tokens, depth)]
    while tokens and tokens[0] not in ("OR", ")"):
        if tokens[0] == "AND":
            tokens.pop(0)
        tests.append(_one(tokens, depth))
    return lambda entry: all(test(entry) for test in tests)


def _one(tokens: list[str], depth: int) -> Test:
    if depth > 50:
        raise ApiError(400, "Unparseable filter: too deep")
    if tokens[:1] == ["NOT"]:
        tokens.pop(0)
        inner = _one(tokens, depth + 1)
        return lambda entry: not inner(entry)
    if tokens[:1] == ["("]:
        tokens.pop(0)
        inner = _any(tokens, depth + 1)
        if tokens[:1] != [")"]:
            raise ApiError(400, "Unparseable filter: a parenthesis is not closed")
        tokens.pop(0)
        return inner
    if len(tokens) < 3 or tokens[1] not in _COMPARE:
        raise ApiError(400, f"Unparseable filter near {' '.join(tokens[:3])!r}")
    path, op, value = tokens.pop(0), tokens.pop(0), tokens.pop(0)
    return _build_comparison(path, op, re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value)


def _build_comparison(path: str, op: str, value: str) -> Test:
    compare, wanted = _COMPARE[op], _comparable(path, value)

    def test(entry: Mapping[str, Any]) -> bool:
        found: Any = entry
        for part in path.replace('"', "").split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found is not None and compare(_comparable(path, str(found)), wanted)

    return test


def _comparable(path: str, value: str) -> Any:
    if path in ("timestamp", "receiveTimestamp"):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ApiError(400, f"Unparseable filter: {value!r} is not a timestamp") from None
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    if path == "severity":
        return _SEVERITIES.index(value.upper()) if value.upper() in _SEVERITIES else 0
    return value
