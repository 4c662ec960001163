"""From an upload's event to a dataset that is complete, once for each of its versions: gather, decide, apply.

No `complete` in the recipe: the object is a dataset of its own. Otherwise an event makes sure that the dataset has
a hold (holds.py); the marker's or manifest's own event, and the sweep, list the bucket and decide (datasets.py).
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from kickoff.completeness import Decision, Empty, Waiting, decide
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
    is_data,
)
from kickoff.errors import LedgerUnavailable, StorageUnavailable
from kickoff.event_types import Upload
from kickoff.holds import (
    CLOSINGS,
    HOLDS,
    HoldView,
    close,
    drop_hold,
    finish,
    holds,
    is_due,
    is_left_behind,
    is_news,
    keep,
    list_all,
    open_hold,
    remember,
    reopen,
    view,
)
from kickoff.ledger.protocol import AlreadyExists, Document, Ledger
from kickoff.manifests import MAX_BYTES, Manifest, parse_manifest
from kickoff.points import around
from kickoff.recipes import Recipes, UploadMatch
from kickoff.runs import DatasetRecord, build_run_id
from kickoff.settings import Settings
from kickoff.storage import Storage, split_uri

__all__ = [
    "Held",
    "NotCurrent",
    "Settled",
    "drop_hold",
    "holds",
    "look",
    "settle",
    "settle_due",
    "settle_object",
    "write_snapshot",
]

MARKERS = "markers"
"""One document for each generation of a marker or manifest that was looked at."""

RETRY = timedelta(minutes=1)
"""After Cloud Storage did not answer."""


@dataclass(frozen=True)
class Settled:
    """A complete dataset. Accept a run for it, then call `done`; never called, it is settled again later."""

    recipe: str
    key: tuple[str, ...]
    """The run's key: (recipe, "upload", root URI, digest)."""
    dataset: DatasetRecord
    """Without `snapshot`: write_snapshot tells its URI."""
    snapshot: bytes
    """The snapshot's JSON."""
    newest: datetime
    """When its newest object was created."""
    done: Callable[[], None]


@dataclass(frozen=True)
class Held:
    """The dataset waits."""

    recipe: str
    root: str
    """``gs://bucket/root/``."""
    since: datetime
    waiting_for: str


@dataclass(frozen=True)
class NotCurrent:
    """The event speaks of nothing that is there now, or that was not settled before."""

    reason: str


def settle(
    match: UploadMatch, upload: Upload, *, ledger: Ledger, storage: Storage, now: datetime
) -> Settled | Held | NotCurrent:
    """What the event of one upload comes to. Raises StorageUnavailable, LedgerUnavailable: deliver it again."""
    rule = build_rule(match.recipe, match.root)
    if rule.mode is Mode.OBJECT:
        found = storage.stat(rule.bucket, upload.name)
        if found is None:
            return NotCurrent(f"{upload.uri} is no longer there")
        if upload.generation is not None and found.generation != upload.generation:
            return NotCurrent(f"{upload.uri}#{upload.generation} was replaced by generation {found.generation}")
        return settle_object(rule, found)
    if upload.name == rule.final:
        return _settle_marker(rule, upload, ledger, storage, now)
    if upload.size == 0:
        return NotCurrent(f"{upload.uri} is empty")
    return _held(view(open_hold(ledger, rule, now)))


def settle_due(
    recipes: Recipes, *, ledger: Ledger, storage: Storage, now: datetime, limit: int = 20
) -> Iterator[Settled]:
    """The sweep's part: looks at no more than `limit` holds that are due, yields the complete ones.

    A hold that cannot be looked at says why, and the others go on.
    """
    for closing in list_all(ledger, CLOSINGS):
        if is_left_behind(closing, now) and (rule := _find_rule(recipes, closing)):
            reopen(ledger, rule, closing, Waiting("another look; the last was cut short", timedelta(0)), now)
    due = [hold for hold in list_all(ledger, HOLDS) if is_due(hold, now)]
    due.sort(key=lambda hold: str(hold.data["next_look"]))
    for hold in due[:limit]:
        rule = _find_rule(recipes, hold)
        if rule is None:
            keep(ledger, hold, Waiting(f"the recipe {hold.data['recipe']}, which no longer watches it", RETRY), now)
            continue
        try:
            outcome = _advance(rule, hold, ledger, storage, now)
        except LedgerUnavailable:
            raise
        except Exception as error:  # one hold's trouble must not stop the others, whatever it is
            keep(ledger, hold, Waiting(f"another try, after {type(error).__name__}: {error}", RETRY), now)
            continue
        if isinstance(outcome, Settled):
            yield outcome


def write_snapshot(storage: Storage, settings: Settings, settled: Settled) -> str:
    """Write what a run is to read, before the run is accepted, and return its URI. Twice is as good as once.

    Its name holds the content's hash: the same bytes uploaded again have one digest, but other generations.
    """
    bucket, prefix = split_uri(settings.staging)
    content = hashlib.sha256(settled.snapshot).hexdigest()
    name = "/".join(filter(None, [prefix.strip("/"), "datasets", settled.recipe, f"{content[:32]}.json"]))
    with around("settling.write-snapshot"):
        run_id = build_run_id(settled.key)
        storage.create(bucket, name, settled.snapshot, content_type="application/json", run=run_id)
    return f"gs://{bucket}/{name}"


def settle_object(rule: Rule, found: StoredObject) -> Settled | NotCurrent:
    """A dataset of one object, pinned to the generation that was found."""
    if found.run:
        return NotCurrent(f"{rule.uri} was written by run {found.run}")
    if not is_data(found.name, found.size):
        return NotCurrent(f"{rule.uri} is empty or no file of a dataset")
    return _settled(rule, Complete((found,), build_digest([found], rule.root), found.created), lambda: None)


def _settle_marker(
    rule: Rule, upload: Upload, ledger: Ledger, storage: Storage, now: datetime
) -> Settled | Held | NotCurrent:
    """The hold first, then the claim on this generation: a crash after either leaves the rest to the sweep."""
    claim = f"{rule.id}-{upload.generation or upload.event_id}"
    if ledger.get_document(MARKERS, claim) and ledger.get_document(HOLDS, rule.id) is None:
        return NotCurrent(f"{upload.uri}#{upload.generation} was looked at before")
    with around("settling.hold"):
        hold = open_hold(ledger, rule, now)
    try:
        with around("settling.claim-marker"):
            ledger.create_document(MARKERS, claim, {"recipe": rule.recipe, "root": rule.uri, "at": now.isoformat()})
    except AlreadyExists:
        return _held(view(hold))
    return _advance(rule, hold, ledger, storage, now)


def _advance(
    rule: Rule, hold: Document, ledger: Ledger, storage: Storage, now: datetime
) -> Settled | Held | NotCurrent:
    """Look; if there is nothing to wait for, close the hold and look again; what differs then opens it again."""
    first = look(rule, storage)
    if isinstance(first, Waiting):
        return _held(keep(ledger, hold, first, now))
    closing = close(ledger, hold, now)
    if closing is None:
        return _held(view(hold))
    seen = _essence(first)
    del first  # a large listing is kept once
    try:
        second = look(rule, storage)
    except StorageUnavailable as error:
        return _held(reopen(ledger, rule, closing, Waiting(str(error), RETRY), now))
    if isinstance(second, Waiting):
        return _held(reopen(ledger, rule, closing, second, now))
    if _essence(second) != seen:
        waiting = Waiting("another look; files came while the last was taken", timedelta(0))
        return _held(reopen(ledger, rule, closing, waiting, now))
    if isinstance(second, Empty) or not is_news(ledger, rule, second.newest, second):
        finish(ledger, closing)
        return NotCurrent(f"{rule.uri} holds nothing that was not settled before")
    return _settled(rule, second, lambda: _done(ledger, rule, second, closing))


def look(rule: Rule, storage: Storage) -> Decision:
    """What the bucket holds now, judged; writes nothing. Raises StorageUnavailable."""
    listing = storage.list(rule.bucket, rule.root)
    if rule.mode is not Mode.MANIFEST:
        return decide(rule, listing)
    final = next((o for o in listing.objects if o.name == rule.final), None)
    if final is None:
        return decide(rule, listing)
    if final.size > MAX_BYTES:
        return decide(rule, listing, Manifest(faults=(f"it has {final.size:,} bytes; at most {MAX_BYTES:,}",)))
    data = storage.read(rule.bucket, rule.final, final.generation)
    return decide(rule, listing, None if data is None else parse_manifest(data, rule.uri))


def _find_rule(recipes: Recipes, document: Document) -> Rule | None:
    """The rule of a hold or closing; None where the recipe is gone or watches another place now."""
    recipe = recipes.get(document.data["recipe"])
    upload = recipe.when.upload if recipe else None
    if recipe is None or upload is None or upload.complete is None:
        return None
    root = f"gs://{upload.bucket}/{upload.root}"
    return build_rule(recipe, root) if root == document.data["root"] else None


def _held(waiting: HoldView) -> Held:
    return Held(waiting.recipe, waiting.root, waiting.since, waiting.waiting_for)


def _essence(decision: Complete | Empty) -> tuple[object, ...]:
    """What must be the same at both looks."""
    return (decision.digest, decision.newest) if isinstance(decision, Complete) else ()


def _done(ledger: Ledger, rule: Rule, complete: Complete, closing: Document) -> None:
    remember(ledger, rule, complete)
    finish(ledger, closing)


def _settled(rule: Rule, complete: Complete, done: Callable[[], None]) -> Settled:
    return Settled(
        recipe=rule.recipe,
        key=build_key(rule, complete.digest),
        dataset=build_dataset(rule, complete),
        snapshot=build_snapshot(rule, complete),
        newest=complete.newest,
        done=done,
    )
