"""Which call of which client behaves how: rows that the client tests carry, and the table made of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])
BEGIN, END = "<!-- conformance: made by the tests -->", "<!-- /conformance -->"


@dataclass(frozen=True, order=True)
class Row:
    client: str
    call: str
    outcome: str


ROWS: set[Row] = set()


def conforms(client: str, call: str, outcome: str) -> Callable[[Test], Test]:
    """Mark the test that shows this."""

    def mark(test: Test) -> Test:
        ROWS.add(Row(client, call, outcome))
        return test

    return mark


def render() -> str:
    """The table in Markdown."""
    head = "| client | call | outcome |\n| --- | --- | --- |\n"
    return head + "".join(f"| {row.client} | `{row.call}` | {row.outcome} |\n" for row in sorted(ROWS))
