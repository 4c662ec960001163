"""Datasets whose event never came: list the buckets, compare with what was settled. The sweep's part. Effect.

Cloud Storage publishes at least once, yet a notification can be deleted, misconfigured or retired after 7 days.
What was there before a recipe's first activation is left alone: a new recipe must not start all that is old.
"""

from collections.abc import Generator, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from kickoff.datasets import Mode, Rule, build_rule, select_members
from kickoff.errors import StorageUnavailable
from kickoff.holds import CLOSINGS, HOLDS, is_news, open_hold
from kickoff.ledger.protocol import AlreadyExists, Conflict, Document, Ledger
from kickoff.points import around
from kickoff.recipe_models import Recipe
from kickoff.recipe_models import Upload as Watched
from kickoff.recipes import Recipes, upload_role
from kickoff.runs import build_run_id
from kickoff.settling import Settled, settle_object
from kickoff.storage import Storage

ACTIVATIONS = "activations"
CURSORS = "cursors"

PERIOD = timedelta(minutes=10)
"""Between two passes over one recipe's bucket: a pass lists all of it."""

GRACE = timedelta(minutes=1)
"""What is younger still has its event under way."""

Progress = dict[str, str]


def activate(recipes: Recipes, ledger: Ledger, now: datetime) -> None:
    """Note when each recipe was first seen to watch its place, once. For a deployment, and for the sweep."""
    for recipe in recipes:
        if recipe.when.upload is None:
            continue
        rule = _watch(recipe, recipe.when.upload)
        if ledger.get_document(ACTIVATIONS, rule.id) is None:
            data = {"recipe": recipe.name, "root": rule.uri, "at": now.isoformat()}
            try:
                with around("lost.activate"):
                    ledger.create_document(ACTIVATIONS, rule.id, data)
            except AlreadyExists:
                pass


def find_lost(
    recipes: Recipes, *, ledger: Ledger, storage: Storage, now: datetime, limit: int = 5000
) -> Iterator[Settled]:
    """Open holds for lost datasets of many files; yield lost objects that are datasets of their own.

    Lists about `limit` objects of each recipe that watches single objects, and goes on from there next time.
    A bucket that does not answer is left for the next time.
    """
    activate(recipes, ledger, now)
    for recipe in recipes:
        if recipe.when.upload is None:
            continue
        rule = _watch(recipe, recipe.when.upload)
        activation = ledger.get_document(ACTIVATIONS, rule.id)
        cursor = _open_cursor(ledger, rule.id, now)
        if activation is None or datetime.fromisoformat(cursor.data["next"]) > now:
            continue
        since = datetime.fromisoformat(activation.data["at"])
        try:
            if rule.mode is Mode.OBJECT:
                progress = yield from _find_objects(recipe, rule, since, cursor.data, ledger, storage, limit)
            else:
                _find_dataset(rule, since, ledger, storage, now)
                progress = {}
            pause = timedelta(0) if progress.get("after") else PERIOD
        except StorageUnavailable:
            progress, pause = cursor.data, GRACE
        _move_cursor(ledger, cursor, {**progress, "next": (now + pause).isoformat()})


def _watch(recipe: Recipe, upload: Watched) -> Rule:
    """All that the recipe watches, as one rule."""
    return build_rule(recipe, f"gs://{upload.bucket}/{upload.root}")


def _find_dataset(rule: Rule, since: datetime, ledger: Ledger, storage: Storage, now: datetime) -> None:
    """Hold it where something was uploaded since the activation and the last settlement, and nothing holds it.

    With a manifest only its own date counts: files that it does not name are no part of the dataset.
    """
    if ledger.get_document(HOLDS, rule.id) or ledger.list_documents(CLOSINGS, prefix=rule.id, limit=1):
        return
    listing = storage.list(rule.bucket, rule.root)
    members = () if rule.mode is Mode.MANIFEST else select_members(listing.objects, rule)
    dates = [o.created for o in (*members, *(o for o in listing.objects if o.name == rule.final))]
    if dates and since < max(dates) <= listing.date - GRACE and is_news(ledger, rule, max(dates)):
        open_hold(ledger, rule, now)


def _find_objects(
    recipe: Recipe, rule: Rule, since: datetime, progress: Progress, ledger: Ledger, storage: Storage, limit: int
) -> Generator[Settled, None, Progress]:
    """Yield objects without a run. What was there when the pass before this one began is not asked for again."""
    after, began = progress.get("after", ""), progress.get("began", "")
    since = max(since, datetime.fromisoformat(progress.get("until", since.isoformat())))
    listed = 0
    for date, page in storage.pages(rule.bucket, rule.root, start=after):
        began = began or date.isoformat()
        for found in page:
            if found.name != after and since < found.created <= date - GRACE and _is_watched(recipe, found.name):
                settled = settle_object(build_rule(recipe, f"gs://{rule.bucket}/{found.name}"), found)
                if isinstance(settled, Settled) and ledger.get_run(build_run_id(settled.key)) is None:
                    yield settled
        listed += len(page)
        if listed >= limit:
            return {"after": page[-1].name, "began": began, "until": since.isoformat()}
    return {"until": (datetime.fromisoformat(began) - GRACE).isoformat()}


def _is_watched(recipe: Recipe, name: str) -> bool:
    upload = recipe.when.upload
    return upload is not None and upload_role(upload, name[len(upload.root) :]) == "object"


def _open_cursor(ledger: Ledger, id: str, now: datetime) -> Document:
    """How far the passes over one recipe's bucket are."""
    while True:
        if cursor := ledger.get_document(CURSORS, id):
            return cursor
        try:
            return ledger.create_document(CURSORS, id, {"next": now.isoformat()})
        except AlreadyExists:
            continue


def _move_cursor(ledger: Ledger, cursor: Document, data: Progress) -> None:
    """After what was found was accepted; of two sweeps at once, the first one's word stands."""
    with suppress(Conflict), around("lost.move-cursor"):
        ledger.replace_document(Document(CURSORS, cursor.id, data, cursor.version, cursor.updated))
