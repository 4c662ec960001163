"""The dataset of a message or a schedule: what lies in the bucket when it is asked for. Effect."""

from datetime import timedelta

from kickoff.datasets import (
    Complete,
    Mode,
    Rule,
    StoredObject,
    build_dataset,
    build_digest,
    build_key,
    build_rule,
    build_snapshot,
    select_members,
)
from kickoff.errors import Fault, InvalidRequest
from kickoff.recipes import Recipe, watched_prefix
from kickoff.request import TrainingRequest
from kickoff.settling import Settled
from kickoff.storage import Storage, split_uri

_DATASET = "{dataset."


def names_dataset(recipe: Recipe) -> bool:
    """Whether the job needs a dataset: its texts name one."""
    return _DATASET in recipe.job.model_dump_json()


def dataset_uri(request: TrainingRequest, recipe: Recipe) -> str:
    """The request's own dataset, else the recipe's, else what the recipe watches; empty: none of them."""
    upload = recipe.when.upload
    watched = watched_prefix(upload) if upload and upload.complete else ""
    return request.dataset or recipe.job.dataset or watched


def look_at(recipe: Recipe, uri: str, storage: Storage) -> Settled:
    """A snapshot of ``gs://bucket/folder/`` or ``gs://bucket/object``, with the recipe's rule where it watches it.

    Raises InvalidRequest where nothing is there that the recipe takes; StorageUnavailable.
    """
    rule = build_look(recipe, uri)
    found = storage.stat(rule.bucket, rule.root) if rule.mode is Mode.OBJECT else None
    members: tuple[StoredObject, ...] = (found,) if found else ()
    if not found:
        folder = rule.root if not rule.root or rule.root.endswith("/") else f"{rule.root}/"
        if folder != rule.root:
            rule = Rule(recipe.name, rule.bucket, folder, Mode.QUIET, timedelta(0))
        members = select_members(storage.list(rule.bucket, folder).objects, rule)
    if not members:
        fault = Fault("dataset", f"dataset {rule.uri} holds no file that the recipe takes; upload it first")
        raise InvalidRequest.from_faults([fault])
    newest = max(member.created for member in members)
    complete = Complete(members, build_digest(members, rule.root), newest)
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
    if not uri:
        text = f"dataset is missing; recipe {recipe.name} watches no dataset of many files, so name one"
        raise InvalidRequest.from_faults([Fault("dataset", text)])
    upload = recipe.when.upload
    if upload and upload.complete and uri == watched_prefix(upload):
        return build_rule(recipe, uri)
    bucket, root = split_uri(uri)
    return Rule(recipe.name, bucket, root, Mode.QUIET if root.endswith("/") else Mode.OBJECT, timedelta(0))
