"""What the source declares and a deployment must make: Firestore indexes and the recipes' schedules.

``python deploy/gcp/declared.py indexes|fields|ttls|schedules``, for quickstart.sh: prints tab-separated values.
All but ``schedules`` read gcloud's JSON list of what exists from stdin and print only what is missing.
Terraform reads the same files itself.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"
INDEXES = FUNCTIONS / "kickoff" / "ledger" / "firestore.indexes.json"


def missing_indexes(declared: Mapping[str, Any], existing: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """(collection group, field config…) of each composite index that is declared and does not exist."""
    there = {(_group(index), _fields(index)) for index in existing}
    for index in declared["indexes"]:
        group, fields = index["collectionGroup"], _fields(index)
        if (group, fields) not in there:
            yield group, " ".join(f"--field-config=field-path={path},order={order.lower()}" for path, order in fields)


def missing_exemptions(declared: Mapping[str, Any], existing: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(collection group, field) of each field that must not be indexed by itself and still is."""
    there = {(_group(field), field["name"].rpartition("/")[2]) for field in existing if not field_indexes(field)}
    for field in declared["fieldOverrides"]:
        if not field["indexes"] and (field["collectionGroup"], field["fieldPath"]) not in there:
            yield field["collectionGroup"], field["fieldPath"]


def missing_ttls(declared: Mapping[str, Any], existing: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(collection group, field) of each field whose time must delete its document, and does not yet."""
    there = {(_group(field), field["name"].rpartition("/")[2]) for field in existing if "ttlConfig" in field}
    for field in declared["fieldOverrides"]:
        if field.get("ttl") and (field["collectionGroup"], field["fieldPath"]) not in there:
            yield field["collectionGroup"], field["fieldPath"]


def field_indexes(field: Mapping[str, Any]) -> Sequence[Any]:
    found: Sequence[Any] = field.get("indexConfig", {}).get("indexes", [])
    return found


def read_schedules() -> Iterator[tuple[str, ...]]:
    """(recipe, cron, time zone, ``paused`` or ``active``), read and checked by the functions' own loader."""
    sys.path.insert(0, str(FUNCTIONS))
    from kickoff.recipes import load_recipes
    from kickoff.templates import TemplateValues

    files = {path.name: path.read_text() for path in sorted((FUNCTIONS / "recipes").glob("*.yaml"))}
    for recipe in load_recipes(files, TemplateValues("project", "us-central1")).scheduled():
        if schedule := recipe.when.schedule:
            yield recipe.name, schedule.cron, schedule.timezone, "paused" if recipe.paused else "active"


def _group(resource: Mapping[str, Any]) -> str:
    """The collection group in ``projects/P/databases/D/collectionGroups/G/…``."""
    return str(resource["name"]).split("/")[5]


def _fields(index: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """(path, order) of each field; Firestore lists a last ``__name__`` that nobody declares."""
    return tuple((f["fieldPath"], f["order"]) for f in index["fields"] if f["fieldPath"] != "__name__")


def main(what: str) -> None:
    if what == "schedules":
        lines: Iterator[tuple[str, ...]] = read_schedules()
    else:
        missing = {"indexes": missing_indexes, "fields": missing_exemptions, "ttls": missing_ttls}[what]
        lines = iter(missing(json.loads(INDEXES.read_text()), json.load(sys.stdin)))
    for line in lines:
        print("\t".join(line))


if __name__ == "__main__":
    main(sys.argv[1])
