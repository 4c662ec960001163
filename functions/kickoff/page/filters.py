"""Which runs the list shows: the filter in the URL, and the search for it in the ledger. Reads only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from kickoff.ledger.protocol import Ledger
from kickoff.runs import Run, State

PAGE = 50
SCAN = 2000
"""Runs that one request looks through for a text or label; the next page goes on from there."""
_BATCH = 200
_LONGEST = 200
_RUN_ID = re.compile(r"[a-z][a-z0-9-]{0,79}")
_JOB_ID = re.compile(r"(?:projects/[^/]+/locations/[^/]+/customJobs/)?(\d{1,20})")


@dataclass(frozen=True)
class Filters:
    """What the URL asks for."""

    recipe: str = ""
    state: str = ""
    label: str = ""
    """``name`` or ``name=value``."""
    text: str = ""
    after: str = ""
    """The run that the page before ended with."""

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> "Filters":
        """What cannot be is left out: a stale bookmark still shows runs."""
        given = {name: query.get(name, "").strip()[:_LONGEST] for name in cls.__dataclass_fields__}
        if given["state"] not in State.__members__:
            given["state"] = ""
        if not _RUN_ID.fullmatch(given["after"]):
            given["after"] = ""
        return cls(**given)

    @property
    def any(self) -> bool:
        return any((self.recipe, self.state, self.label, self.text))

    def url(self, after: str = "") -> str:
        given = {**vars(self), "after": after}
        return "/?" + urlencode({name: value for name, value in given.items() if value})

    def matches(self, run: Run) -> bool:
        """The part of the filter that the ledger does not answer."""
        return _has_label(run, self.label) and _has_text(run, self.text)


@dataclass(frozen=True)
class Found:
    runs: list[Run]
    after: str
    """Where the next page goes on; empty: there is no more."""
    searched: int


def find(ledger: Ledger, filters: Filters) -> Found:
    """One page of runs, newest first. The id of a run or of its job is looked up, whatever the number of runs."""
    if filters.text and (exact := _look_up(ledger, filters)):
        return Found(exact, "", len(exact))
    states = [State(filters.state)] if filters.state else []
    batch = _BATCH if filters.text or filters.label else PAGE + 1
    after = filters.after if filters.after and ledger.get_run(filters.after) else ""
    found: list[Run] = []
    searched = 0
    while searched < SCAN:
        page = ledger.find_runs(recipe=filters.recipe, states=states, limit=batch, after=after)
        for run in page:
            if len(found) == PAGE:
                return Found(found, after, searched)
            searched += 1
            after = run.run_id
            if filters.matches(run):
                found.append(run)
        if len(page) < batch:
            return Found(found, "", searched)
    return Found(found, after, searched)


def _look_up(ledger: Ledger, filters: Filters) -> list[Run]:
    runs: list[Run] = []
    if _RUN_ID.fullmatch(filters.text) and (run := ledger.get_run(filters.text)):
        runs = [run]
    elif job := _JOB_ID.fullmatch(filters.text):
        runs = ledger.find_runs(job_id=job[1])
    return [run for run in runs if _is_of(run, filters) and _has_label(run, filters.label)]


def _is_of(run: Run, filters: Filters) -> bool:
    return filters.recipe in ("", run.recipe) and filters.state in ("", run.state)


def _has_label(run: Run, label: str) -> bool:
    name, equals, value = label.partition("=")
    return not label or (name in run.labels and (not equals or run.labels[name] == value))


def _has_text(run: Run, text: str) -> bool:
    if not text:
        return True
    job = run.job.name if run.job else ""
    dataset = run.dataset.uri if run.dataset else ""
    parts = (run.run_id, *run.key, run.trigger.source, run.trigger.by, job, dataset, run.model_uri, run.waiting_for)
    faults = (fault.message for fault in run.faults)
    wanted = text.lower()
    return any(wanted in part.lower() for part in (*parts, *faults))
