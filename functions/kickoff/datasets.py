"""A dataset of one or many objects: its members, its digest, its snapshot. Pure.

Decisions that are kept here:

* The key of an upload is (recipe, "upload", root URI, digest). The digest is over the sorted pairs of (name
  relative to the root, crc32c), so the same bytes uploaded again are the same version, and start nothing.
  Where Cloud Storage does not show a crc32c (objects under a customer-supplied key), the generation stands in.
* Members are the objects below the root that the recipe's glob matches. Never members: empty objects,
  "folder" placeholders, temporaries of parallel composite uploads, the marker or manifest itself, and what
  runs wrote (custom metadata `kickoff-run`). A manifest that names an empty object with its crc32c or size gets it.

Listings are strongly consistent and in the order of UTF-8 names: https://cloud.google.com/storage/docs/consistency,
https://cloud.google.com/storage/docs/json_api/v1/objects/list
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from kickoff.recipes import Recipe, upload_role
from kickoff.runs import DatasetRecord

SNAPSHOT_SCHEMA = "kickoff.dataset-snapshot.v1"

OWN = "kickoff-run"
"""Custom metadata on every object that a run writes: its run id."""

MAX_MEMBERS = 500_000
"""A listing that finds more is held with that reason: snapshot and listing are kept in memory (160 MB at the limit)."""


class StoredObject(NamedTuple):
    """The live generation of one object."""

    name: str
    generation: int
    crc32c: str
    """Base64 of the big-endian CRC32C, as Cloud Storage shows it; empty where it does not."""
    size: int
    """Bytes."""
    created: datetime
    """When this generation was finalized, by Cloud Storage's clock."""
    run: str = ""
    """The run that wrote it, from the metadata `kickoff-run`."""


class Mode(StrEnum):
    OBJECT = "object"
    QUIET = "quiet"
    MARKER = "marker"
    MANIFEST = "manifest"


@dataclass(frozen=True)
class Rule:
    """What one recipe says of one dataset: where it lies, what belongs to it, and when it is complete."""

    recipe: str
    bucket: str
    root: str
    """The name prefix, ``datasets/flowers/``; the object's own name where `mode` is OBJECT."""
    mode: Mode
    quiet: timedelta = timedelta(0)
    """Mode QUIET: its period. Modes MARKER and MANIFEST: the recipe's `settle`."""
    final: str = ""
    """The full name of the marker or manifest."""
    matches: Callable[[str], bool] = lambda name: True
    """Whether the recipe takes a full object name as a member's."""

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}/{self.root}"

    @property
    def id(self) -> str:
        """The name of everything that the ledger keeps of this dataset; sorts by recipe."""
        return f"{self.recipe}-{hashlib.sha256(self.uri.encode()).hexdigest()[:20]}"


@dataclass(frozen=True)
class Listing:
    """What lies below a root, at one time."""

    date: datetime
    """Of the answer to the first page, by Cloud Storage's clock: what is created while paging is younger."""
    objects: Sequence[StoredObject]


@dataclass(frozen=True)
class Complete:
    """All of it is there."""

    members: tuple[StoredObject, ...]
    digest: str
    newest: datetime
    """The newest creation among the members, the marker and the manifest."""


def build_rule(recipe: Recipe, root_uri: str) -> Rule:
    """The rule of the dataset at `root_uri`, which `recipe` watches: UploadMatch.root."""
    upload = recipe.when.upload
    if upload is None:
        raise ValueError(f"recipe {recipe.name} watches no uploads")
    root = root_uri.removeprefix(f"gs://{upload.bucket}/")
    complete = upload.complete
    if complete is None:
        return Rule(recipe.name, upload.bucket, root, Mode.OBJECT)
    return Rule(
        recipe=recipe.name,
        bucket=upload.bucket,
        root=root,
        mode=Mode.QUIET if complete.quiet is not None else Mode.MARKER if complete.marker else Mode.MANIFEST,
        quiet=timedelta(seconds=complete.settle if complete.quiet is None else complete.quiet),
        final=root + (complete.marker or complete.manifest or "") if complete.quiet is None else "",
        matches=lambda name: upload_role(upload, name[len(root) :]) == "member",
    )


def is_data(name: str, size: int) -> bool:
    """Whether an object can be a file of a dataset at all, whatever the recipe says.

    Temporaries: https://cloud.google.com/storage/docs/parallel-composite-uploads
    """
    folder = name.endswith(("/", "_$folder$"))
    temporary = name.startswith("gcloud/tmp/parallel_composite_uploads/") or "/parallel_composite_uploads/" in name
    return size > 0 and not folder and not temporary


def select_members(objects: Iterable[StoredObject], rule: Rule) -> tuple[StoredObject, ...]:
    """The members among what was listed below the root, in the order of their names' UTF-8 bytes."""
    found = (
        o
        for o in objects
        if o.name.startswith(rule.root)
        and o.name != rule.final
        and not o.run
        and is_data(o.name, o.size)
        and rule.matches(o.name)
    )
    return tuple(sorted(found, key=lambda o: o.name))  # code points sort as their UTF-8 bytes do


def build_digest(members: Iterable[StoredObject], root: str) -> str:
    """SHA-256, hex, over one JSON line ``[relative name, crc32c or "generation N"]`` for each, by name."""
    digest = hashlib.sha256()
    for member in members:
        line = json.dumps([member.name[len(root) :], member.crc32c or f"generation {member.generation}"])
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def build_key(rule: Rule, digest: str) -> tuple[str, ...]:
    """The key of the run: see the module's text."""
    return (rule.recipe, "upload", rule.uri, digest)


def build_dataset(rule: Rule, complete: Complete) -> DatasetRecord:
    """The run's record of it; `snapshot` is filled in by who writes the snapshot."""
    size = sum(member.size for member in complete.members)
    return DatasetRecord(uri=rule.uri, digest=complete.digest, objects=len(complete.members), bytes=size)


def build_snapshot(rule: Rule, complete: Complete) -> bytes:
    """The JSON document that the trainer reads its data by, UTF-8, members sorted by name."""
    members = [
        {"name": m.name, "generation": str(m.generation), "crc32c": m.crc32c, "size": m.size} for m in complete.members
    ]
    snapshot = {"schema": SNAPSHOT_SCHEMA, "uri": rule.uri, "digest": complete.digest, "members": members}
    return json.dumps(snapshot, ensure_ascii=False, separators=(",", ":")).encode()
