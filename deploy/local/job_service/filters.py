"""The `filter` and `orderBy` of list requests, as SQL over the store's columns. Pure.

https://google.aip.dev/160, as far as ListCustomJobs documents it: `display_name`, `state`, `create_time`,
`update_time`, `labels.KEY`; `= != < <= > >= :`; AND, OR, NOT, `-` and parentheses. OR binds tighter than AND.
"""

import re
from dataclasses import dataclass

from deploy.local.job_service.errors import ApiError

_TOKEN = re.compile(
    r'\s*(?:(?P<op><=|>=|!=|=|<|>|:)|(?P<paren>[()])|(?P<text>"(?:\\.|[^"\\])*"|[^\s()=!<>:"]+(?:"[^"]*")?))'
)
_COLUMNS = {"display_name": "display_name", "displayName": "display_name", "state": "state"}
_TIMES = {
    "create_time": "create_time",
    "createTime": "create_time",
    "update_time": "update_time",
    "updateTime": "update_time",
}
_ORDERS = _TIMES | {"display_name": "display_name", "displayName": "display_name"}
_EQUALITY = {"=": "=", ":": "=", "!=": "<>"}
_MAX_TERMS = 100


@dataclass(frozen=True)
class Where:
    """An SQL condition and its parameters."""

    sql: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order:
    column: str = "create_time"
    descending: bool = True


def parse_filter(text: str) -> Where:
    """Raises ApiError (400) naming what cannot be understood."""
    if not text.strip():
        return Where("1")
    return _Parser(text).parse()


def parse_order(text: str) -> Order:
    """One field, `desc` after it or not. Raises ApiError (400)."""
    if not text.strip():
        return Order()
    words = text.split()
    if words[0] not in _ORDERS or len(words) > 2 or words[1:] not in ([], ["desc"], ["asc"]):
        raise ApiError(
            400, f"Invalid order_by {text!r}; order by one of {sorted(set(_ORDERS.values()))}, optionally desc."
        )
    return Order(_ORDERS[words[0]], words[1:] == ["desc"])


class _Parser:
    """Recursive descent: sequence = term (AND? term)*, term = factor (OR factor)*."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None or len(self.tokens) > 4 * _MAX_TERMS:
                raise self._error(f"cannot read {text[position:][:40]!r}")
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind]))
            position = match.end()

    def parse(self) -> Where:
        where = self._all()
        if self.tokens:
            raise self._error(f"unexpected {self.tokens[0][1]!r}")
        return where

    def _all(self) -> Where:
        parts = [self._any()]
        while self.tokens and self.tokens[0] != ("paren", ")"):
            self._take("AND")
            parts.append(self._any())
        return _join(" AND ", parts)

    def _any(self) -> Where:
        parts = [self._factor()]
        while self._take("OR"):
            parts.append(self._factor())
        return _join(" OR ", parts)

    def _factor(self) -> Where:
        if self._take("NOT"):
            inner = self._factor()
            return Where(f"NOT ({inner.sql})", inner.parameters)
        if self.tokens and self.tokens[0] == ("paren", "("):
            self.tokens.pop(0)
            inner = self._all()
            if not self.tokens or self.tokens.pop(0) != ("paren", ")"):
                raise self._error("a parenthesis is not closed")
            return Where(f"({inner.sql})", inner.parameters)
        return self._comparison()

    def _comparison(self) -> Where:
        field, op, value = self._next("text"), self._next("op"), self._next("text")
        if field.startswith("-"):
            inner = self._condition(field[1:], op, value)
            return Where(f"NOT ({inner.sql})", inner.parameters)
        return self._condition(field, op, value)

    def _condition(self, field: str, op: str, value: str) -> Where:
        plain = _unquote(value)
        if field.startswith("labels."):
            return self._label(_unquote(field.removeprefix("labels.")), op, value)
        if field in _TIMES and op != ":":
            return Where(f"{_TIMES[field]} {'<>' if op == '!=' else op} ?", (plain,))
        if field in _COLUMNS and op in _EQUALITY:
            if op == ":" and field != "state":
                return Where(f"instr({_COLUMNS[field]}, ?) > 0", (plain,))
            return Where(f"{_COLUMNS[field]} {_EQUALITY[op]} ?", (plain,))
        raise self._error(f"{field} {op} is not supported")

    def _label(self, key: str, op: str, value: str) -> Where:
        column = "(SELECT value FROM json_each(labels) WHERE key = ?)"
        if op == ":" and value == "*":
            return Where(f"{column} IS NOT NULL", (key,))
        if op not in _EQUALITY:
            raise self._error(f"labels.{key} {op} is not supported")
        return Where(f"ifnull({column}, '') {_EQUALITY[op]} ?", (key, _unquote(value)))

    def _take(self, word: str) -> bool:
        if self.tokens and self.tokens[0] == ("text", word):
            self.tokens.pop(0)
            return True
        return False

    def _next(self, kind: str) -> str:
        if not self.tokens or self.tokens[0][0] != kind:
            raise self._error("a comparison needs a field, an operator and a value")
        return self.tokens.pop(0)[1]

    def _error(self, what: str) -> ApiError:
        return ApiError(400, f"Invalid filter {self.text[:200]!r}: {what}.")


def _join(word: str, parts: list[Where]) -> Where:
    if len(parts) == 1:
        return parts[0]
    return Where("(" + word.join(part.sql for part in parts) + ")", tuple(p for part in parts for p in part.parameters))


def _unquote(text: str) -> str:
    return (
        re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') and text.endswith('"') and len(text) > 1 else text
    )
