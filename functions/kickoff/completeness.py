"""Whether all of a dataset has arrived, judged from what its bucket holds. Pure.

* Age is judged by the creation time of generations against the date of the listing's own answer: a change of
  metadata is no new version, and no clock but Cloud Storage's is asked.
* *quiet*: complete when nothing was created for that long.
* *marker*: complete when the marker is there and no member is newer. Newer ones (a folder copied with the
  marker inside: copies are in no order) hold it until a newer marker comes, or until all is quiet for `settle`.
* *manifest*: complete when every entry is there and agrees with whatever the entry says of generation,
  crc32c and size. Entries that say none of the first two follow the marker's rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from kickoff.datasets import MAX_MEMBERS, Complete, Listing, Mode, Rule, StoredObject, build_digest, select_members
from kickoff.manifests import Entry, Manifest

NAMED = 3
"""So many missing or newer members are named; the rest are counted."""

LOOK_SOONEST = timedelta(seconds=10)
LOOK_LATEST = timedelta(minutes=5)


@dataclass(frozen=True)
class Waiting:
    """Not yet."""

    waiting_for: str
    """For people; follows the words "waits for"."""
    look_again: timedelta
    """After so long a look may find it complete without any event."""


@dataclass(frozen=True)
class Empty:
    """Nothing is there that a run could train on, and no marker or manifest that promises it."""


Decision = Complete | Waiting | Empty


def decide(rule: Rule, listing: Listing, manifest: Manifest | None = None) -> Decision:
    """Whether the dataset is complete, from what the bucket holds. `manifest` is the parsed one, if it is there."""
    if len(listing.objects) > MAX_MEMBERS:
        return Waiting(f"at most {MAX_MEMBERS:,} objects below {rule.uri}; there are more", LOOK_LATEST)
    if rule.mode is Mode.QUIET:
        return _decide_quiet(rule, listing)
    final = next((o for o in listing.objects if o.name == rule.final), None)
    members = select_members(listing.objects, rule)
    if final is None:
        if not members:
            return Empty()
        return Waiting(f"the {rule.mode} gs://{rule.bucket}/{rule.final}", _soon(listing, members))
    if rule.mode is Mode.MARKER:
        if not members:
            return Waiting(f"files: the marker is there, and no object below {rule.uri} matches", LOOK_LATEST)
        return _decide_final(rule, listing, final, members, members)
    if manifest is None or manifest.faults:
        what = "; ".join(manifest.faults) if manifest else "it was replaced while it was read"
        return Waiting(f"a valid manifest gs://{rule.bucket}/{rule.final}: {what}", LOOK_LATEST)
    return _decide_manifest(rule, listing, final, manifest)


def _decide_quiet(rule: Rule, listing: Listing) -> Decision:
    members = select_members(listing.objects, rule)
    if not members:
        return Empty()
    newest = max(members, key=lambda m: m.created)
    left = rule.quiet - (listing.date - newest.created)
    if left > timedelta(0):
        text = f"{format_span(rule.quiet)} without a new file; the newest of"
        return Waiting(f"{text} {len(members):,} is {_relative(rule, newest)}", left)
    return Complete(members, build_digest(members, rule.root), newest.created)


def _decide_manifest(rule: Rule, listing: Listing, final: StoredObject, manifest: Manifest) -> Decision:
    there = {o.name: o for o in listing.objects}
    wrong: list[str] = []
    members: list[StoredObject] = []
    unpinned: list[StoredObject] = []
    for entry in manifest.entries:
        found = there.get(rule.root + entry.name)
        fault = _check_entry(entry, found)
        if found is None or fault:
            wrong.append(f"{entry.name} {fault}")
            continue
        members.append(found)
        if not entry.pinned:
            unpinned.append(found)
    if wrong:
        text = f"{len(wrong):,} of the {len(manifest.entries):,} files in {_relative(rule, final)}: {_name(wrong)}"
        return Waiting(text, _soon(listing, members))
    members.sort(key=lambda m: m.name)
    return _decide_final(rule, listing, final, tuple(members), unpinned)


def _check_entry(entry: Entry, found: StoredObject | None) -> str:
    if found is None:
        return "is missing"
    if entry.generation is not None and entry.generation != found.generation:
        return f"has generation {found.generation}, not {entry.generation}"
    if entry.crc32c and found.crc32c and entry.crc32c != found.crc32c:
        return f"has crc32c {found.crc32c}, not {entry.crc32c}"
    if entry.size is not None and entry.size != found.size:
        return f"has {found.size} bytes, not {entry.size}"
    if not entry.pinned and entry.size is None and found.size == 0:
        return "is empty"
    return ""


def _decide_final(
    rule: Rule,
    listing: Listing,
    final: StoredObject,
    members: tuple[StoredObject, ...],
    dated: Sequence[StoredObject],
) -> Decision:
    """Complete, unless one of the `dated` members is newer than the marker or manifest `final`."""
    newer = [m for m in dated if m.created > final.created]
    newest = max([final.created, *(m.created for m in members)])
    left = rule.quiet - (listing.date - newest)
    if newer and left > timedelta(0):
        names = _name([_relative(rule, m) for m in newer])
        text = (
            f"a newer {rule.mode}, or {format_span(rule.quiet)} without a new file: "
            f"{len(newer):,} of {len(members):,} files are newer than {_relative(rule, final)}: {names}"
        )
        return Waiting(text, left)
    return Complete(members, build_digest(members, rule.root), newest)


def _soon(listing: Listing, members: Sequence[StoredObject]) -> timedelta:
    """Look often while files still come, rarely when none has come for long; their events write nothing."""
    if not members:
        return LOOK_LATEST
    age = listing.date - max(m.created for m in members)
    return min(max(age / 4, LOOK_SOONEST), LOOK_LATEST)


def _relative(rule: Rule, found: StoredObject) -> str:
    return found.name[len(rule.root) :]


def _name(items: Sequence[str]) -> str:
    more = len(items) - NAMED
    return ", ".join(items[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def format_span(span: timedelta) -> str:
    """``2m``, ``90s``, ``1h``: as recipes write it."""
    seconds = span.total_seconds()
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"
