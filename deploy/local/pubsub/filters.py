"""The filter language of subscriptions. Pure.

``attributes:key``, ``attributes.key = "value"``, ``!=``, ``hasPrefix(attributes.key, "value")``, joined by AND,
OR, NOT (or ``-``) and parentheses. AND and OR do not mix without parentheses; operators are upper case.
An absent key is unequal to every value. At most 256 bytes.

https://cloud.google.com/pubsub/docs/subscription-message-filter
"""

import json
import re
from collections.abc import Callable, Mapping

Predicate = Callable[[Mapping[str, str]], bool]

MAX_BYTES = 256
_TOKEN = re.compile(r'\s*(?:(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<word>[A-Za-z0-9_-]+)|(?P<mark>!=|[=:.,()]))')


class FilterError(ValueError):
    """The text is not a filter; the message says where and what was expected."""


def parse_filter(text: str) -> Predicate:
    """A predicate over a message's attributes. The empty text passes everything. Raises FilterError."""
    if not text.strip():
        return lambda _attributes: True
    if (size := len(text.encode())) > MAX_BYTES:
        raise FilterError(f"filter is {size} bytes; it must be at most {MAX_BYTES}")
    reader = _Reader(text)
    predicate = reader.expression()
    if reader.kind:
        raise reader.error("AND, OR or the end")
    return predicate


class _Reader:
    """A recursive-descent reader; `kind` and `token` are the next token, `kind` is empty at the end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.advance()

    def advance(self) -> str:
        """The current token; moves on to the next one."""
        current = getattr(self, "token", "")
        self.start = self.end
        self.kind, self.token = "", ""
        if self.text[self.end :].strip():
            match = _TOKEN.match(self.text, self.end)
            if match is None:
                raise FilterError(
                    f"filter has an unexpected character at {self.end}: {self.text[self.end :].strip()[:1]!r}"
                )
            self.kind, self.end = str(match.lastgroup), match.end()
            self.token = match[self.kind]
            if self.kind == "word" and self.token.startswith("-"):  # `-attributes:k` is NOT
                self.kind, self.end = "mark", match.start("word") + 1
                self.token = "-"
        return current

    def error(self, expected: str) -> FilterError:
        found = repr(self.token) if self.kind else "the end"
        return FilterError(f"filter has {found} at {self.start}; expected {expected}")

    def take(self, token: str) -> None:
        if self.token != token:
            raise self.error(repr(token))
        self.advance()

    def expression(self) -> Predicate:
        terms = [self.term()]
        joiner = self.token if self.kind == "word" and self.token in {"AND", "OR"} else ""
        while self.kind == "word" and self.token in {"AND", "OR"}:
            if self.token != joiner:
                raise FilterError(f"filter mixes AND and OR at {self.start}; put one of them in parentheses")
            self.advance()
            terms.append(self.term())
        if joiner == "OR":
            return lambda attributes: any(term(attributes) for term in terms)
        return lambda attributes: all(term(attributes) for term in terms)

    def term(self) -> Predicate:
        if self.token in {"NOT", "-"} and self.kind != "string":
            self.advance()
            inner = self.term()
            return lambda attributes: not inner(attributes)
        if self.token == "(":
            self.advance()
            inner = self.expression()
            self.take(")")
            return inner
        if self.token == "hasPrefix":
            return self.has_prefix()
        return self.comparison()

    def has_prefix(self) -> Predicate:
        self.take("hasPrefix")
        self.take("(")
        self.take("attributes")
        self.take(".")
        key = self.key()
        self.take(",")
        prefix = self.string()
        self.take(")")
        return lambda attributes: attributes.get(key, "").startswith(prefix) if key in attributes else False

    def comparison(self) -> Predicate:
        if self.token != "attributes":
            raise self.error("attributes, hasPrefix, NOT or '('")
        self.advance()
        if self.token == ":":
            self.advance()
            present = self.key()
            return lambda attributes: present in attributes
        self.take(".")
        key = self.key()
        operator = self.token
        if operator not in {"=", "!="}:
            raise self.error("'=' or '!='")
        self.advance()
        value = self.string()
        if operator == "=":
            return lambda attributes: attributes.get(key) == value
        return lambda attributes: attributes.get(key) != value

    def key(self) -> str:
        if self.kind == "string":
            return self.string()
        if self.kind != "word":
            raise self.error("an attribute key")
        return self.advance()

    def string(self) -> str:
        if self.kind != "string":
            raise self.error('a "quoted" value')
        try:
            return str(json.loads(self.token, strict=False))
        except ValueError as error:
            raise FilterError(f"filter has a bad escape in {self.token} at {self.start}") from error
        finally:
            self.advance()
