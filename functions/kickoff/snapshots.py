"""The dataset of a message or a schedule: what lies in the bucket when it is asked for. Effect."""

from datetime import timedelta

from kickoff.datasets import Complete as Found
from kickoff.datasets import (
    Mode,
    Rule,
    build_dataset,
    build_digest,
    build_key,
    build_rule,
    build_snapshot,
    select_members,
)
from kickoff.errors import Fault, InvalidRequest
from kickoff.recipes import Recipe, watched_prefix
from kickoff.settling import Settled
from kickoff.storage import Storage

_DATASET = "{dataset."


def names_dataset(recipe: Recipe) -> bool:
    """Whether the job needs a dataset: its texts name one."""
    return _DATASET in recipe.job.model_dump_json()


def look_at(recipe: Recipe, uri: str, storage: Storage) -> Settled:
    """A snapshot of `uri` (``gs://bucket/root/``), or of the place that the recipe watches.

    Raises InvalidRequest where there is no such place, or nothing in it; StorageUnavailable.
    """
    rule = build_look(recipe, uri)
    listing = storage.list(rule.bucket, rule.root)
    members = select_members(listing.objects, rule)
    if not members:
        raise InvalidRequest.from_faults(
            [Fault("dataset", f"dataset {rule.uri} holds no file that the recipe takes; upload it first")]
        )
    newest = max(member.created for member in members)
    complete = Found(members, build_digest(members, rule.root), newest)
    return Settled(
        recipe=rule.recipe,
        key=build_key(rule, complete.digest),
        dataset=build_dataset(rule, complete),
        snapshot=build_snapshot(rule, complete),
        newest=newest,
        done=lambda: None,
    )


def build_look(recipe: Recipe, uri: str) -> Rule:
    """Where to look, and what counts. Raises InvalidRequest."""
    upload = recipe.when.upload
    watched = watched_prefix(upload) if upload and upload.complete else ""
    if not uri and not watched:
        fault = Fault(
            "dataset", f"dataset is missing; recipe {recipe.name} watches no dataset of many files, so name one"
        )
        raise InvalidRequest.from_faults([fault])
    if not uri or uri == watched:
        return build_rule(recipe, watched)
    bucket, _, root = uri.removeprefix("gs://").partition("/")
    if not uri.startswith("gs://") or not bucket or (root and not root.endswith("/")):
        raise InvalidRequest.from_faults([Fault("dataset", f"dataset is {uri!r}; it must be gs://BUCKET/FOLDER/")])
    return Rule(recipe.name, bucket, root, Mode.QUIET, timedelta(0))
