"""What waits for the rest of its files, in the ledger. Effect.

A dataset that an event spoke of has a document in `holds` until a run was accepted for it. Events only read it, and
create it where it is absent; the sweep and the event of a marker write it. So that nothing is lost:

* Closing moves it: first a document in `closings` is created, then the hold is deleted, and only then the bucket is
  listed. An event that found the hold came before that listing, and its object with it (listings are strongly
  consistent); one that comes later makes a new hold. No event ever needs to tell a closer anything.
* `finish` comes after the run was accepted. A closing that its process left behind becomes a hold again.
* Every hold has a nonce of its own, which also names its closing: two sweeps cannot close one hold, and a slow
  one cannot finish the closing of a later hold.

`settled` remembers for each dataset how far it was settled: a late duplicate of an event, or a deletion, is no news.
"""

import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from kickoff.completeness import Waiting, format_span
from kickoff.datasets import MAX_MEMBERS, Complete, Mode, Rule
from kickoff.ledger.protocol import AlreadyExists, Conflict, Document, Ledger
from kickoff.points import around

HOLDS = "holds"
CLOSINGS = "closings"
SETTLED = "settled"

CLOSING_LEASE = timedelta(minutes=2)
"""After it a closing counts as left behind. Two closers at once do no harm: their runs have one key."""

_PAGE = 100


@dataclass(frozen=True)
class HoldView:
    """A dataset that waits, as `kickoff runs` shows it: HELD."""

    recipe: str
    root: str
    """``gs://bucket/root/``."""
    since: datetime
    waiting_for: str
    next_look: datetime
    closing: bool = False
    """Complete as far as is known, and a run is being made of it."""


def holds(ledger: Ledger) -> list[HoldView]:
    """All that wait, oldest first."""
    views = [view(document) for document in list_all(ledger, HOLDS)]
    waiting = {(view.recipe, view.root) for view in views}
    closing = [view(document, closing=True) for document in list_all(ledger, CLOSINGS)]
    views += [view for view in closing if (view.recipe, view.root) not in waiting]
    return sorted(views, key=lambda view: view.since)


def drop_hold(ledger: Ledger, recipe: str, root: str, now: datetime) -> bool:
    """Stop waiting for a dataset (`kickoff cancel`). What is uploaded later waits anew. False: it does not wait."""
    for hold in list_all(ledger, HOLDS, prefix=f"{recipe}-"):
        if hold.data["root"] == root and hold.data["recipe"] == recipe:
            _remember(ledger, hold.id, now, MAX_MEMBERS, digest="")
            _delete_hold(ledger, hold)
            return True
    return False


def list_all(ledger: Ledger, collection: str, prefix: str = "") -> list[Document]:
    """A small collection, page by page."""
    found: list[Document] = []
    while True:
        after = found[-1].id if found else ""
        page = ledger.list_documents(collection, prefix=prefix, limit=_PAGE, after=after)
        found += page
        if len(page) < _PAGE:
            return found


def open_hold(ledger: Ledger, rule: Rule, now: datetime) -> Document:
    """The dataset's hold, made where there is none. All that a member's event does."""
    if hold := ledger.get_document(HOLDS, rule.id):
        return hold
    if rule.mode is Mode.QUIET:
        waiting = Waiting(f"{format_span(rule.quiet)} without a new file", rule.quiet)
    else:
        waiting = Waiting(f"the {rule.mode} gs://{rule.bucket}/{rule.final}", timedelta(seconds=10))
    return _create(ledger, rule, since=now, waiting=waiting, now=now)


def keep(ledger: Ledger, hold: Document, waiting: Waiting, now: datetime) -> HoldView:
    """Write down what a hold waits for now. A closer or another sweep that was faster is right, too."""
    data = {**hold.data, "waiting_for": waiting.waiting_for, "next_look": (now + waiting.look_again).isoformat()}
    changed = Document(hold.collection, hold.id, data, hold.version, hold.updated)
    with suppress(Conflict), around("holds.keep"):
        ledger.replace_document(changed)
    return view(changed)


def close(ledger: Ledger, hold: Document, now: datetime) -> Document | None:
    """Take the hold away, to list what it covered. None: another process is at it."""
    data = {**hold.data, "closed": now.isoformat()}
    try:
        with around("holds.create-closing"):
            closing = ledger.create_document(CLOSINGS, f"{hold.id}-{hold.data['nonce']}", data)
    except AlreadyExists:
        return None
    with around("holds.delete-hold"):
        _delete_hold(ledger, hold)
    return closing


def _delete_hold(ledger: Ledger, hold: Document) -> None:
    """Whatever `keep` made of it meanwhile; a hold with another nonce is a later one, and stays."""
    current: Document | None = hold
    while current and current.data["nonce"] == hold.data["nonce"]:
        try:
            return ledger.delete_document(current)
        except Conflict:
            current = ledger.get_document(HOLDS, hold.id)
    return None


def reopen(ledger: Ledger, rule: Rule, closing: Document, waiting: Waiting, now: datetime) -> HoldView:
    """Make a closing a hold again; a hold that an event made meanwhile will do."""
    since = datetime.fromisoformat(closing.data["since"])
    with around("holds.reopen"):
        hold = _create(ledger, rule, since=since, waiting=waiting, now=now)
    finish(ledger, closing)
    return keep(ledger, hold, waiting, now) if hold.data["since"] != closing.data["since"] else view(hold)


def finish(ledger: Ledger, closing: Document) -> None:
    """The end of a hold: its run was accepted, or there is nothing to run."""
    with around("holds.finish"):
        ledger.delete_document(closing)  # nobody replaces closings: no conflict


def is_left_behind(closing: Document, now: datetime) -> bool:
    return now - datetime.fromisoformat(closing.data["closed"]) > CLOSING_LEASE


def is_due(hold: Document, now: datetime) -> bool:
    return datetime.fromisoformat(hold.data["next_look"]) <= now


def remember(ledger: Ledger, rule: Rule, complete: Complete) -> None:
    """Note how far the dataset is settled."""
    with around("holds.remember"):
        _remember(ledger, rule.id, complete.newest, len(complete.members), complete.digest)


def _remember(ledger: Ledger, id: str, newest: datetime, objects: int, digest: str) -> None:
    data = {"newest": newest.isoformat(), "objects": objects, "digest": digest}
    try:
        ledger.create_document(SETTLED, id, data)
        return
    except AlreadyExists:
        previous = ledger.get_document(SETTLED, id)
    if previous is None or datetime.fromisoformat(previous.data["newest"]) > newest:
        return
    with suppress(Conflict):  # a later settlement; forgetting this one costs a look, no run
        ledger.replace_document(Document(SETTLED, id, data, previous.version, previous.updated))


def is_news(ledger: Ledger, rule: Rule, newest: datetime, settled: Complete | None = None) -> bool:
    """Whether something was uploaded since the dataset was last settled; deletions alone are no news.

    An object may show up later than a newer one: other bytes, and no fewer of them, are news whatever their date.
    """
    previous = ledger.get_document(SETTLED, rule.id)
    if previous is None or newest > datetime.fromisoformat(previous.data["newest"]):
        return True
    if settled is None:
        return False
    return len(settled.members) >= int(previous.data["objects"]) and settled.digest != str(previous.data["digest"])


def _create(ledger: Ledger, rule: Rule, *, since: datetime, waiting: Waiting, now: datetime) -> Document:
    data = {
        "recipe": rule.recipe,
        "root": rule.uri,
        "nonce": secrets.token_hex(8),
        "since": since.isoformat(),
        "waiting_for": waiting.waiting_for,
        "next_look": (now + waiting.look_again).isoformat(),
    }
    while True:
        try:
            with around("holds.create"):
                return ledger.create_document(HOLDS, rule.id, data)
        except AlreadyExists:
            if hold := ledger.get_document(HOLDS, rule.id):
                return hold


def view(document: Document, closing: bool = False) -> HoldView:
    """A hold's or closing's document for people."""
    data = document.data
    since, next_look = datetime.fromisoformat(data["since"]), datetime.fromisoformat(data["next_look"])
    waiting_for = "its run is being made" if closing else data["waiting_for"]
    return HoldView(data["recipe"], data["root"], since, waiting_for, next_look, closing)
