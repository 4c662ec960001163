"""The table of docs/security.md, made from the Terraform's own table of grants (iam.tf, output `grants`)."""

from collections.abc import Mapping
from typing import Any

BEGIN, END = "<!-- grants: begin -->", "<!-- grants: end -->"
_KINDS = ("project", "account", "bucket", "topic", "subscription", "function", "repository")
_HEAD = "| who | role | on | why |\n| --- | --- | --- | --- |\n"


def render_grants(grants: Mapping[str, Mapping[str, Any]]) -> str:
    """One row for each grant; project-wide ones first, since they reach furthest."""
    rows = sorted(grants.values(), key=lambda each: (_KINDS.index(each["kind"]), each["on"], each["who"], each["role"]))
    return _HEAD + "".join(_row(each) for each in rows)


def replace_table(document: str, table: str) -> str:
    """`document` with the table between its marks. Raises ValueError where a mark is missing."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document must hold {BEGIN} and {END}")
    return f"{head}{begin}\n\n{table}\n{end}{tail}"


def _row(grant: Mapping[str, Any]) -> str:
    where = f"{grant['kind']} `{grant['on']}`" if grant["on"] else "the project"
    if grant["condition"]:
        where += f", only where `{_plain(grant['condition'])}`"
    return f"| {grant['who']} | `{_plain(grant['role'])}` | {where} | {grant['why']} |\n"


def _plain(text: str) -> str:
    """Without the project of the plan that the table was made from."""
    return text.replace("acme-train", "PROJECT").replace("123456789012", "NUMBER").replace("europe-west4", "REGION")
