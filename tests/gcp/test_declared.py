"""Which declared Firestore indexes are missing. Firestore lists each with a last `__name__`, which nobody declares."""

import json
from typing import Any

from deploy.gcp.declared import INDEXES, missing_exemptions, missing_indexes, missing_ttls

DECLARED = json.loads(INDEXES.read_text())
UNINDEXED = [field for field in DECLARED["fieldOverrides"] if not field["indexes"]]
PREFIX = "projects/acme-train/databases/kickoff/collectionGroups"


def listed(index: dict[str, Any]) -> dict[str, Any]:
    last = {"fieldPath": "__name__", "order": index["fields"][-1]["order"]}
    return {"name": f"{PREFIX}/{index['collectionGroup']}/indexes/CICA", "fields": [*index["fields"], last]}


def exempt(field: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"{PREFIX}/{field['collectionGroup']}/fields/{field['fieldPath']}", "indexConfig": {}}


def test_in_a_new_database_everything_is_missing() -> None:
    assert len(list(missing_indexes(DECLARED, []))) == len(DECLARED["indexes"])
    group, flags = next(iter(missing_indexes(DECLARED, [])))
    assert group == "runs"
    assert flags.startswith("--field-config=field-path=state,order=ascending --field-config=field-path=")
    assert len(list(missing_exemptions(DECLARED, []))) == len(UNINDEXED)


def test_a_field_is_told_to_expire_once() -> None:
    assert list(missing_ttls(DECLARED, [])) == [("epochs", "expires")]
    there = {"name": f"{PREFIX}/epochs/fields/expires", "ttlConfig": {"state": "CREATING"}}
    assert list(missing_ttls(DECLARED, [there])) == []


def test_what_exists_is_not_made_again() -> None:
    assert list(missing_indexes(DECLARED, list(map(listed, DECLARED["indexes"])))) == []
    assert list(missing_exemptions(DECLARED, list(map(exempt, UNINDEXED)))) == []


def test_only_the_new_one_is_made() -> None:
    *old, new = DECLARED["indexes"]
    (missing,) = missing_indexes(DECLARED, list(map(listed, old)))
    assert missing[0] == new["collectionGroup"]
    assert missing[1].count("--field-config") == len(new["fields"])


def test_a_field_that_is_still_indexed_counts_as_missing() -> None:
    """Firestore's own default lists every field of a database as ``__default__/fields/*``, which is none of ours."""
    indexed = {**exempt(UNINDEXED[0]), "indexConfig": {"indexes": [{"queryScope": "COLLECTION"}]}}
    default = {"name": f"{PREFIX}/__default__/fields/*", "indexConfig": {"indexes": []}}
    assert len(list(missing_exemptions(DECLARED, [indexed, default]))) == len(UNINDEXED)
